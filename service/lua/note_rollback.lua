-- Notes that a model is about to go back to a snapshot, which it does once for each.
-- KEYS: 1 meta
-- ARGV: 1 incarnation, 2 generation, 3 id of the snapshot
-- RETURNS: 'NOTED', 'AGAIN' it went back to this one before, 'MOVED' another state or model, or none
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'generation', 'rolled_back')
if meta[1] ~= ARGV[1] or meta[2] ~= ARGV[2] then
  return 'MOVED'
end
if meta[3] == ARGV[3] then
  return 'AGAIN'
end
redis.call('HSET', KEYS[1], 'rolled_back', ARGV[3])
return 'NOTED'

-- Stores figures for readers, if the model is still at the commit that they follow from.
-- KEYS: 1 meta, 2 evaluation
-- ARGV: 1 incarnation, 2 token, 3... fields and values
-- RETURNS: 1 stored, 0 the model moved on (nothing changed)
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'token')
if meta[1] ~= ARGV[1] or meta[2] ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[2], unpack(ARGV, 3))
return 1

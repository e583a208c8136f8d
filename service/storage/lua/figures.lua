-- Stores figures for readers, if the model is still at the commit that they follow from.
-- KEYS: 1 meta, 2 evaluation
-- ARGV: 1 incarnation, 2 token, 3... fields and values
-- RETURNS: 1 stored, 0 the model moved on (nothing changed)
local incarnation, token, FIRST_FIELD = ARGV[1], ARGV[2], 3
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'token')
if meta[1] ~= incarnation or meta[2] ~= token then
  return 0
end
redis.call('HSET', KEYS[2], unpack(ARGV, FIRST_FIELD))
return 1

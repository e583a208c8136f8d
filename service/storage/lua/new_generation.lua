-- Numbers a generation of the state that is to be filled, if the model is still what the caller copied.
-- KEYS: 1 meta
-- ARGV: 1 incarnation, 2 token, or empty for any
-- RETURNS: the number, which never repeats in an incarnation; 0 the model moved on (nothing changed)
local incarnation, token = ARGV[1], ARGV[2]
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'token')
if meta[1] ~= incarnation or (token ~= '' and meta[2] ~= token) then
  return 0
end
return redis.call('HINCRBY', KEYS[1], 'generations', 1)

-- Creates a model unless it exists.
-- KEYS: 1 meta
-- ARGV: field, value, ... of a new meta
-- RETURNS: 1 created, 0 it existed (nothing changed)
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
redis.call('HSET', KEYS[1], unpack(ARGV))
return 1

-- Creates a model unless it exists, or its name is claimed by an alias.
-- KEYS: 1 meta
-- ARGV: 1 key of the claim, which shares the hash tag of KEYS, then field, value, ... of a new meta
-- RETURNS: 1 created, 0 it existed, -1 its name is claimed (nothing changed)
local claim, FIRST_FIELD = ARGV[1], 2
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
if redis.call('EXISTS', claim) == 1 then
  return -1
end
redis.call('HSET', KEYS[1], unpack(ARGV, FIRST_FIELD))
return 1

-- Creates a model whose state was filled before, unless it exists, or its name is claimed by an alias.
-- KEYS: 1 meta, 2 filled state
-- ARGV: 1 how many slots were filled, 2 key of the claim, which shares the hash tag of KEYS,
--       then field, value, ... of a new meta; `incarnation` is the first
-- RETURNS: {'CREATED'} now, or by an earlier attempt, {'EXISTS'} (nothing changed), {'CLAIMED'} (nothing changed),
--          {'INCOMPLETE', slots} the filled state does not hold all of them any more (nothing changed)
local slots, claim, FIRST_FIELD, incarnation = tonumber(ARGV[1]), ARGV[2], 3, ARGV[4]
local current = redis.call('HGET', KEYS[1], 'incarnation')
if current then
  return {current == incarnation and 'CREATED' or 'EXISTS'}
end
if redis.call('EXISTS', claim) == 1 then
  return {'CLAIMED'}
end
local held = redis.call('HLEN', KEYS[2])
if held ~= slots then
  return {'INCOMPLETE', held}
end
redis.call('PERSIST', KEYS[2])
redis.call('HSET', KEYS[1], unpack(ARGV, FIRST_FIELD))
return {'CREATED'}

-- Puts slots into a state key that nobody reads yet; it expires unless switch_generation takes it up.
-- KEYS: 1 state being filled
-- ARGV: 1 seconds until it expires, 2 slots (22 bytes each, MessagePack)
-- RETURNS: how many slots it holds now
local seconds, slots = ARGV[1], ARGV[2]
local CHUNK = 3000
local function set_slots(following, ...)
  redis.call('HSET', KEYS[1], ...)
  return following
end
local position = #slots > 0 and 0 or -1
while position >= 0 do -- a field and its value for each slot; -1 after the last
  position = set_slots(cmsgpack.unpack_limit(slots, CHUNK, position))
end
redis.call('EXPIRE', KEYS[1], seconds)
return redis.call('HLEN', KEYS[1])

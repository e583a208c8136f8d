-- Puts slots into a state key that nobody reads yet; it expires unless switch_generation takes it up.
-- KEYS: 1 state being filled
-- ARGV: 1 seconds until it expires, 2 slots (20 bytes each)
-- RETURNS: how many slots it holds now
local seconds, slots = ARGV[1], ARGV[2]
local RECORD, SLOT, CHUNK = 20, 4, 3000
local fields, k = {}, 0
for start = 1, #slots, RECORD do
  fields[k + 1] = string.sub(slots, start, start + SLOT - 1)
  fields[k + 2] = string.sub(slots, start + SLOT, start + RECORD - 1)
  k = k + 2
  if k == CHUNK then
    redis.call('HSET', KEYS[1], unpack(fields, 1, k))
    k = 0
  end
end
if k > 0 then redis.call('HSET', KEYS[1], unpack(fields, 1, k)) end
redis.call('EXPIRE', KEYS[1], seconds)
return redis.call('HLEN', KEYS[1])

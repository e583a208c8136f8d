-- Puts slots into, and removes others from, a state key that no process reads yet; it expires unless a switch takes it up.
--
-- After: hash_fields, drop_slots
-- KEYS: 1 state being filled
-- ARGV: 1 seconds until it expires, 2 slots (changed_type in records.py), 3 slots that go (4 bytes each)
-- RETURNS: how many slots it holds now
local seconds, slots, dropped = ARGV[1], ARGV[2], ARGV[3]
change_fields('HSET', KEYS[1], slots)
drop_slots(KEYS[1], dropped)
redis.call('EXPIRE', KEYS[1], seconds)
return redis.call('HLEN', KEYS[1])

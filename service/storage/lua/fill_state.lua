-- Puts slots into a state key that no process reads yet; it expires unless a switch takes it up.
--
-- After: set_slots
-- KEYS: 1 state being filled
-- ARGV: 1 seconds until it expires, 2 slots (changed_type in records.py)
-- RETURNS: how many slots it holds now
local seconds, slots = ARGV[1], ARGV[2]
set_slots(KEYS[1], slots)
redis.call('EXPIRE', KEYS[1], seconds)
return redis.call('HLEN', KEYS[1])

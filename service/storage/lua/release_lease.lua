-- Gives the lease back, so that the next learner starts at once.
-- KEYS: 1 lease
-- ARGV: 1 holder
-- RETURNS: 1 released, 0 it was not the caller's
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])

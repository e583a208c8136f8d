-- Removes a request from its list and pushes the reply to it, once.
-- KEYS: 1 requests, 2 reply to this one
-- ARGV: 1 request, 2 reply, 3 seconds until the reply expires
-- RETURNS: 1 now, 0 the request is not there: it was answered or given up
local request, reply, seconds = ARGV[1], ARGV[2], ARGV[3]
-- Removal comes first: on a full server only a script that has written is given memory.
if redis.call('LREM', KEYS[1], 0, request) == 0 then
  return 0
end
redis.call('RPUSH', KEYS[2], reply)
redis.call('EXPIRE', KEYS[2], seconds)
return 1

-- Removes an entry of the log that repeated_entries.lua has found, and what is claimed for its examples.
--
-- KEYS: 1 meta, 2 log
-- ARGV: 1 incarnation, 2 id of the entry, 3 prefix of the event buckets, 4 how long an event id is kept (s),
--       then ids in the buckets: of the events and of the micro-batch that made them
-- RETURNS: how many entries were removed
-- A claim of an append that was acknowledged later names another entry, and stays.
local incarnation, entry, buckets, retention, FIRST = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), 5
if redis.call('HGET', KEYS[1], 'incarnation') ~= incarnation then
  return 0
end
local seconds = tonumber(redis.call('TIME')[1])
for hour = math.floor(seconds / 3600) + 1, math.floor((seconds - retention) / 3600), -1 do
  local bucket = buckets .. hour
  for k = FIRST, #ARGV do
    local claim = redis.call('HGET', bucket, ARGV[k])
    if claim and string.find(claim, entry .. ':', 1, true) then redis.call('HDEL', bucket, ARGV[k]) end
  end
end
return redis.call('XDEL', KEYS[2], entry)

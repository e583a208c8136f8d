-- Removes an entry of the log that repeated_entries.lua has found, and what is claimed for its examples.
--
-- KEYS: 1 meta, 2 log
-- ARGV: 1 incarnation, 2 id of the entry, 3 prefix of the event buckets,
--       then ids in the buckets: of the events and of the micro-batch that made them
-- RETURNS: how many entries were removed
-- A claim of an append that was acknowledged later names another entry, and stays.
local incarnation, entry, buckets, FIRST = ARGV[1], ARGV[2], ARGV[3], 4
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'events')
if meta[1] ~= incarnation then
  return 0
end
for hour in string.gmatch(meta[2] or '', '%d+') do
  local bucket = buckets .. hour
  for k = FIRST, #ARGV do
    local claim = redis.call('HGET', bucket, ARGV[k])
    if claim and string.find(claim, entry .. ':', 1, true) then redis.call('HDEL', bucket, ARGV[k]) end
  end
end
return redis.call('XDEL', KEYS[2], entry)

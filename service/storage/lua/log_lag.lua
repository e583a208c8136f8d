-- Reads how far the learner is behind the log, and whether there is other work for it.
--
-- After: clock, backlog
-- KEYS: 1 meta, 2 log, 3 index of pending predictions, 4 snapshot requests, 5 challengers
-- ARGV: none
-- RETURNS: {entries in the log, examples ever appended, examples applied, number of the first example in the log
--           or -1, age in milliseconds of the oldest entry that is not learned, or 0,
--           1 where any prediction was ever logged or else 0, requests for a snapshot, bytes of the records that
--           are not learned, its challengers with what they have reported, whom it follows itself or '',
--           applied log id}
local meta = redis.call('HMGET', KEYS[1], 'appended', 'applied', 'applied_number', 'clock', 'clock_seen',
  'backlog_bytes', 'follows')
if not meta[1] then
  return {0, 0, 0, -1, 0, 0, 0, 0, {}, '', '0-0'}
end
local function next_after(id)
  return redis.call('XRANGE', KEYS[2], id, '+', 'COUNT', 1)[1]
end
local first, waiting = next_after('-'), next_after('(' .. meta[2])
local first_number, milliseconds = -1, 0
if first and first[2][1] == 'n' then
  first_number = tonumber(first[2][2]) or -1
end
if waiting then
  local now = math.floor(clock_of(meta[4], meta[5]).time / 1000)
  milliseconds = now - tonumber(string.match(waiting[1], '%d+'))
end
return {
  redis.call('XLEN', KEYS[2]), tonumber(meta[1]), tonumber(meta[3]), first_number, math.max(0, milliseconds),
  redis.call('EXISTS', KEYS[3]), redis.call('LLEN', KEYS[4]),
  bytes_of_backlog(meta[6], meta[1], meta[3]), redis.call('HGETALL', KEYS[5]),
  meta[7] or '', meta[2]
}

-- Commits what the learner learned, if the model is still what the learner started from.
--
-- After: log_ids, set_slots
-- KEYS: 1 meta, 2 state, 3 commits, 4 log, 5 evaluation
-- ARGV: 1 incarnation, 2 generation, 3 previous token, 4 new token, 5 applied log id, 6 applied number, 7 t,
--       8 commit number, 9 examples skipped so far, 10 changed slots (CHANGED in records.py), 11 learned entries,
--       12 margins, 13 skipped flags, 14 id before which commits go, 15 id before which the log may go,
--       16 how long the log is kept (ms), 17 how many fields of the evaluation go, then their names,
--       then the fields of the evaluation that are written: name, value, ...
-- RETURNS: {'COMMITTED', id in commits}, {'CONFLICT', current token or ''},
--          {'LOST'} the log no longer holds the entry that was learned last
local incarnation, generation, previous, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local applied, applied_number, t, number, skipped = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local changed, entries, margins, skipped_flags = ARGV[10], ARGV[11], ARGV[12], ARGV[13]
local commits_from, log_from, log_milliseconds = ARGV[14], ARGV[15], tonumber(ARGV[16])
local deleted, first_argument, CHUNK = tonumber(ARGV[17]), 18, 3000

local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'generation', 'token')
if meta[1] ~= incarnation or meta[2] ~= generation or meta[3] ~= previous then
  return {'CONFLICT', meta[3] or ''}
end
-- A server that came back with less of the log may still hold our token: then the learned entries do not exist.
if #entries > 0 and #redis.call('XRANGE', KEYS[4], applied, applied) == 0 then
  return {'LOST'}
end

local time = redis.call('TIME')
local expired = string.format('%.0f-0', math.max(0, time[1] * 1000 - log_milliseconds))
if before(log_from, expired) then log_from = expired end
if before(applied, log_from) then log_from = applied end
-- Trims come first: on a full server they make room, and a script that has written is not refused memory.
redis.call('XTRIM', KEYS[3], 'MINID', '~', commits_from)
redis.call('XTRIM', KEYS[4], 'MINID', '~', log_from)

set_slots(KEYS[2], changed)
for start = first_argument, first_argument + deleted - 1, CHUNK do
  local stop = math.min(start + CHUNK, first_argument + deleted) - 1
  redis.call('HDEL', KEYS[5], unpack(ARGV, start, stop))
end
for start = first_argument + deleted, #ARGV, CHUNK do
  redis.call('HSET', KEYS[5], unpack(ARGV, start, math.min(start + CHUNK - 1, #ARGV)))
end
redis.call('HSET', KEYS[1], 'token', token, 'applied', applied, 'applied_number', applied_number, 't', t,
  'commit', number, 'skipped', skipped)
local id = redis.call('XADD', KEYS[3], '*', 'previous', previous, 'token', token, 'commit', number, 't', t,
  'applied', applied, 'applied_number', applied_number, 'skipped_total', skipped,
  'changed', changed, 'entries', entries, 'margins', margins, 'skipped', skipped_flags)
return {'COMMITTED', id}

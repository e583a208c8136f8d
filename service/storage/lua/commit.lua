-- Commits what the learner learned, if the model is still what the learner started from. The changed slots go into the
-- commits stream only; checkpoint.lua writes them into the state, behind the commits.
--
-- After: clock, backlog, log_ids, log_entry, hash_fields
-- KEYS: 1 meta, 2 commits, 3 log, 4 evaluation
-- ARGV: 1 incarnation, 2 generation, 3 previous token, 4 new token, 5 applied log id, 6 applied number, 7 t,
--       8 commit number, 9 examples skipped so far, 10 changed slots (changed_type in records.py), 11 learned entries,
--       12 margins, 13 skipped flags, 14 id before which commits go, 15 id before which the log may go,
--       16 how long the log is kept (ms), 17 SHA-1 of the records of the entry that was learned last, as hex,
--       18 discount, or '' where nothing was ever forgotten, 19 bytes of the records that were learned,
--       20 format of a model that this version has learned, 21 slots that were dropped (4 bytes each),
--       22 '1' if the log is that of another model, whose slot this may not be: the learner has checked it,
--       23 names of fields of the evaluation that go, 24 fields of it that are written: name, value, ...;
--       both as change_fields takes them
-- RETURNS: {'COMMITTED', id in commits}, {'CONFLICT', current token or ''},
--          {'LOST'} what was learned is not what the log holds
local incarnation, generation, previous, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local applied, applied_number, t, number, skipped = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local changed, entries, margins, skipped_flags = ARGV[10], ARGV[11], ARGV[12], ARGV[13]
local commits_from, log_from, log_milliseconds = ARGV[14], ARGV[15], tonumber(ARGV[16])
local digest, discount, learned_bytes = ARGV[17], ARGV[18], tonumber(ARGV[19])
local format, dropped, follows, deleted = ARGV[20], ARGV[21], ARGV[22] == '1', ARGV[23]
local written = ARGV[24]

local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'generation', 'token', 'appended', 'clock', 'clock_seen',
  'backlog_bytes', 'checkpoint', 'applied_number', 'left_out', 'format')
if meta[1] ~= incarnation or meta[2] ~= generation or meta[3] ~= previous then
  return {'CONFLICT', meta[3] or ''}
end
-- A server may still have our token although it has lost the learned entries, has others under their ids (a failover),
-- or has an entry of an append of which it ran only half (torn_tail.py), whose number the next append has as well. What
-- is refused here is what repeated_entries.lua finds: refusing more, the learner would try one entry permanently.
local function holds_what_was_learned()
  local found = redis.call('XRANGE', KEYS[3], applied, '+', 'COUNT', 2)
  local last, following = found[1], found[2]
  if not last or last[1] ~= applied then return false end
  local first, count, records = examples_of(last[2])
  local after = tonumber(applied_number)
  if not first or redis.sha1hex(records) ~= digest or first + count ~= after then return false end
  if not following then return tonumber(meta[4]) >= after end
  return (examples_of(following[2]) or after) > first
end
if #entries > 0 and not follows and not holds_what_was_learned() then
  return {'LOST'}
end

local clock = clock_of(meta[5], meta[6])
local expired = string.format('%.0f-0', math.max(0, math.floor(clock.time / 1000) - log_milliseconds))
if before(log_from, expired) then log_from = expired end
if before(applied, log_from) then log_from = applied end
local checkpoint, is_behind = meta[8], (meta[8] or '') ~= ''
if not is_behind then -- the state is that of the last commit
  local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
  checkpoint = last and last[1] or '0-0'
end
if before(checkpoint, commits_from) then commits_from = checkpoint end
-- Trims come first: on a full server they make room, and a script that has written is not refused memory.
redis.call('XTRIM', KEYS[2], 'MINID', '~', commits_from)
redis.call('XTRIM', KEYS[3], 'MINID', '~', log_from)

change_fields('HDEL', KEYS[4], deleted)
change_fields('HSET', KEYS[4], written)
local optional = {}
if discount ~= '' then optional = {'discount', discount} end
if dropped ~= '' then
  optional[#optional + 1], optional[#optional + 2] = 'dropped', dropped
end
local id = redis.call('XADD', KEYS[2], '*', 'previous', previous, 'token', token, 'commit', number, 't', t,
  'applied', applied, 'applied_number', applied_number, 'skipped_total', skipped,
  'changed', changed, 'entries', entries, 'margins', margins, 'skipped', skipped_flags,
  unpack(optional))
-- Meta comes last: a server that runs only half of this at a restart (torn_tail.py) then has a commit that no other
-- follows, which readers pass over, and not a token that no commit has.
if not is_behind then
  redis.call('HSET', KEYS[1], 'checkpoint', checkpoint, 'checkpoint_token', previous)
end
local backlog_bytes = math.max(0, bytes_of_backlog(meta[7], meta[4], applied_number) - learned_bytes)
local fields = {'token', token, 'applied', applied, 'applied_number', applied_number, 't', t, 'commit', number,
  'skipped', skipped, 'backlog_bytes', backlog_bytes, clock_fields(clock)}
local function set(name, value)
  fields[#fields + 1], fields[#fields + 2] = name, value
end
if meta[11] ~= format then set('format', format) end
if discount ~= '' then set('discount', discount) end
if follows and digest ~= '' then set('learned_digest', digest) end
if #entries == 0 and not follows and applied_number ~= meta[9] then -- an operator had these skipped
  set('left_out', string.format('%s%s:%s,', meta[10] or '', meta[9], applied_number))
end
redis.call('HSET', KEYS[1], unpack(fields))
return {'COMMITTED', id}

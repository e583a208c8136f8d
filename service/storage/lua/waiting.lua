-- Part of the scripts of logged predictions: pending ones, under their ids and listed by when they are due. After: clock
-- waiting_changes.lua has what all but log_new_predictions need besides.
--
-- KEYS: 1 meta, 2 log, 3 index (hash: list -> bytes; '#bytes' of all that waits; '=u' and so on: how many wait in
--       each kind; '#joined' and so on: how many ever), 4 slices, 5 what those of the hashes of what
--       waits (id -> value) begin with; these and the keys of lists follow from their names and share the hash tag
-- ARGV: 1 incarnation, 2 prefix of the lists, how long each kind waits (s): 3 u, 4 g, 5 i, 6 c,
--       7 max bytes of pending predictions, 8 learn_at, 9 late, 10 negative_sample_rate,
--       11 max examples in the backlog, 12 max bytes and 13 max examples in one log entry,
--       14 bytes of the backlog from which on nothing is appended,
--       15 the model's `feedback` that the caller has these settings from
-- RETURNS: {'GONE'} there is no such incarnation, {'CHANGED', `feedback` and `config` of the model's meta} other
--          settings are in force by now, and nothing was done; otherwise what the script says.
--
-- Kinds: u predictions not shown yet, g not shown but with a label, i impressions, c closed ones.
-- Id: the last 10 bytes of that of a prediction, which is two of 0 and a digest.
-- Value of u, g, i: stage (1 byte: its kind and label, see STAGES), since when (u32, s), the state that was read (low
-- bits of the commit number, u16, and 4 bytes of its token), margin (f64), the 4 bytes of the prediction's id before,
-- then with a label of a weight other than 1 that weight (f64), or with a label between 0 and 1 that label and its
-- weight (f64 each), then flags (1 byte) and features as a record of the log has them. Value of c: stage, since when,
-- a label between 0 and 1 (f64), then the position in the log where it has a label that was in time; or what it was,
-- from the commit number on, where it had none and a late label is learned too.
-- Label: '0', '1', or 's' and 8 bytes (f64) for one between.
-- Hashes: shards by a byte of the id, each with more ids than the one before by the same ratio, the last with nearly
-- twice those of the first. So their tables double one after the other: all at once would take 18 bytes an id.
-- List: elements of up to a few ids each, in the order in which they began to wait. Named by kind and by when its ids
-- are due, in seconds, rounded up to a 30th of the kind's time; by other names where that time was changed since
-- (change_feedback.lua). What waits is in a list of its own kind, but i that are due later than they were as u stay in
-- that of u, and go on from there when it comes, which is no later than they are due. So most predictions are in one
-- list at a time. An id that is in another list too does nothing there.
local incarnation, prefix = ARGV[1], ARGV[2]
local wait_of = {u = tonumber(ARGV[3]), g = tonumber(ARGV[4]), i = tonumber(ARGV[5]), c = tonumber(ARGV[6])}
local OWN, CHUNK = 16, 3000 -- the first argument of a script's own
-- What the bundled server takes, measured, at most: a share of the table; an allocation of a multiple of 16 bytes less
-- 8 for an id and its value, or, where that is long, one for the id and one for the value, some of which were larger
-- before; an id in a list.
local TABLE_BYTES, LONG_VALUE, ID_BYTES_OF_LONG, LISTED_BYTES = 22, 110, 29, 12
local ID_BYTES, LISTED_TOGETHER = 10, 100
local REVISION, MARGIN, PREFIX, BODY = 6, 12, 20, 24 -- where the parts of a value begin
local WIDTHS = 30
local WEIGHT_1 = struct.pack('<d', 1)
local SHARDS_BY_LOG = 8 / math.log(2) -- as many as WAITING_SHARDS, see service/storage/records.py
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'appended', 'applied_number', 'slices', 'feedback',
  'clock', 'clock_seen', 'backlog_bytes')
if meta[1] ~= incarnation then
  return {'GONE'}
end
if (meta[5] or '') ~= ARGV[15] then
  return {'CHANGED', meta[5] or '', redis.call('HGET', KEYS[1], 'config')}
end
local clock = clock_of(meta[6], meta[7])
local now = clock.time / 1000000
local since_now = struct.pack('<I4', math.floor(now))

-- When the list comes in which what waits since then is due; that second had begun already.
local function comes_at(kind, seconds)
  local width = math.max(1, math.ceil(wait_of[kind] / WIDTHS))
  return math.ceil((seconds + 1 + wait_of[kind]) / width) * width
end
local function list_for(kind, seconds) return kind .. comes_at(kind, seconds) end
local function hash_of(id)
  return KEYS[5] .. math.floor(math.log(1 + string.byte(id, 7) / 256) * SHARDS_BY_LOG)
end
-- Of a value of so many bytes, with its id and all.
local function bytes_of(length)
  if length <= LONG_VALUE then return length + 24 + -(length + 24) % 16 - 8 + TABLE_BYTES end
  return ID_BYTES_OF_LONG + length + 12 + -(length + 12) % 16 - 8 + TABLE_BYTES
end

local function push_to_list(name, ids)
  local elements = {}
  for start = 1, #ids, LISTED_TOGETHER do
    elements[#elements + 1] = table.concat(ids, '', start, math.min(start + LISTED_TOGETHER - 1, #ids))
  end
  redis.call('RPUSH', prefix .. name, unpack(elements))
end

local function settle_time()
  if not clock.old then return end
  redis.call('HDEL', KEYS[1], '') -- of what is not there: a script that only stores the time is refused no memory then
  redis.call('HSET', KEYS[1], clock_fields(clock))
end


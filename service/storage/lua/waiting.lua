-- Part of the scripts of logged predictions: pending ones, under their ids and listed by when they are due. After: clock
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
-- then with a label of a weight other than 1 that weight (f64), then flags (1 byte) and features as a record of the
-- log has them. Value of c: stage, since when, then the position in the log where it has a label that was in time; or
-- what it was, from the commit number on, where it had none and a late label is learned too.
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
-- Strings rather than tables, which every call would have to make, also those that keep predictions and need none.
local STAGES = 'uxyXYi0123abnl'
local KINDS  = 'uggggiiiiicccc'
local HEAVY  = 'XY23' -- those with a weight

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

local function stage(value) return (string.find(STAGES, string.sub(value, 1, 1), 1, true)) end
local function kind_of(value) return string.sub(KINDS, stage(value), stage(value)) end
local function is_heavy(value) return string.find(HEAVY, string.sub(value, 1, 1), 1, true) end
local function since(value) return (struct.unpack('<I4', value, 2)) end
-- When the list comes in which what waits since then is due; that second had begun already.
local function comes_at(kind, seconds)
  local width = math.max(1, math.ceil(wait_of[kind] / WIDTHS))
  return math.ceil((seconds + 1 + wait_of[kind]) / width) * width
end
local function list_for(kind, seconds) return kind .. comes_at(kind, seconds) end
local function list_of(value) return list_for(kind_of(value), since(value)) end
local function is_due(value) return since(value) + 1 + wait_of[kind_of(value)] <= now end

local changes, listed = {}, {} -- field of the index -> what to add; list -> ids to add
local function change(field, by) changes[field] = (changes[field] or 0) + by end
local function count(what, by) change('#' .. what, by or 1) end

local function hash_of(id)
  return KEYS[5] .. math.floor(math.log(1 + string.byte(id, 7) / 256) * SHARDS_BY_LOG)
end
local function by_hash(ids)
  local groups = {}
  for _, id in ipairs(ids) do
    local hash = hash_of(id)
    local group = groups[hash] or {}
    groups[hash] = group
    group[#group + 1] = id
  end
  return groups
end

-- Of a value of so many bytes, with its id and all.
local function bytes_of(length)
  if length <= LONG_VALUE then return length + 24 + -(length + 24) % 16 - 8 + TABLE_BYTES end
  return ID_BYTES_OF_LONG + length + 12 + -(length + 12) % 16 - 8 + TABLE_BYTES
end
-- How many of a kind there are more, and of how many bytes in all.
local function weigh(kind, number, bytes)
  change('=' .. kind, number)
  change('#bytes', bytes)
end
-- Goes before any put: a server at its memory limit refuses a script that has only added so far.
local function take(id, value)
  redis.call('HDEL', hash_of(id), id)
  weigh(kind_of(value), -1, -bytes_of(#value))
end
-- Without listing it: where it takes the place of one that is due at the same time.
local function put_back(id, value)
  redis.call('HSET', hash_of(id), id, value)
  weigh(kind_of(value), 1, bytes_of(#value))
end
local function list(id, value)
  local name = list_of(value)
  listed[name] = listed[name] or {}
  table.insert(listed[name], id)
end
local function put(id, value)
  put_back(id, value)
  list(id, value)
end
-- In place of one that has been taken and was due by its list.
local function put_after(former, id, value)
  put_back(id, value)
  local kind = kind_of(value)
  local at = comes_at(kind, since(value))
  if at < comes_at(kind_of(former), since(former)) then
    list(id, value)
  else
    change(kind .. at, 0) -- so that the index shows since when impressions are open
  end
end

local function add_to_list(name, ids)
  local elements = {}
  for start = 1, #ids, LISTED_TOGETHER do
    elements[#elements + 1] = table.concat(ids, '', start, math.min(start + LISTED_TOGETHER - 1, #ids))
  end
  redis.call('RPUSH', prefix .. name, unpack(elements))
  change(name, #ids * LISTED_BYTES)
  change('#bytes', #ids * LISTED_BYTES)
end

local function settle_index()
  for name, ids in pairs(listed) do add_to_list(name, ids) end
  local fields, changed = {}, {}
  for field in pairs(changes) do fields[#fields + 1] = field end
  if #fields == 0 then return end
  local old = redis.call('HMGET', KEYS[3], unpack(fields))
  redis.call('HDEL', KEYS[3], '') -- of what is not there: a script that has only counted is refused no memory then
  for k, field in ipairs(fields) do
    changed[#changed + 1] = field
    changed[#changed + 1] = tonumber(old[k] or 0) + changes[field]
  end
  redis.call('HSET', KEYS[3], unpack(changed))
end
-- Writes the lists, the index and the time; to be called once, at the end.
local function settle()
  settle_index()
  if not clock.old then return end
  redis.call('HDEL', KEYS[1], '') -- of what is not there: a script that only stores the time is refused no memory then
  redis.call('HSET', KEYS[1], clock_fields(clock))
end

-- id -> value of those that are there.
local function find(ids)
  local found = {}
  for hash, some in pairs(by_hash(ids)) do
    for start = 1, #some, CHUNK do
      local stop = math.min(start + CHUNK - 1, #some)
      local values = redis.call('HMGET', hash, unpack(some, start, stop))
      for k = start, stop do found[some[k]] = values[k - start + 1] or nil end
    end
  end
  return found
end

local function without_label(value)
  if not is_heavy(value) then return value, WEIGHT_1 end
  return string.sub(value, 1, BODY - 1) .. string.sub(value, BODY + 8), string.sub(value, BODY, BODY + 7)
end


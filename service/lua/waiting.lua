-- Part of the scripts of logged predictions: what waits, under its id and listed by when it is due.
--
-- KEYS: 1 meta, 2 log, 3 index (hash: list -> bytes; '#bytes' of all that waits; '=u' and so on: how many wait in
--       each kind; '#joined' and so on: how many ever), 4 slices, 5 what waits (hash: id -> value);
--       the keys of lists follow from their names and share the hash tag
-- ARGV: 1 incarnation, 2 prefix of the lists, how long each kind waits (s): 3 u, 4 g, 5 i, 6 c,
--       7 most bytes that may wait, 8 learn_at, 9 late, 10 negative_sample_rate,
--       11 most examples the backlog may hold, 12 most bytes and 13 most examples in one log entry,
--       14 the model's `feedback` that the caller has these settings from
-- RETURNS: {'GONE'} another incarnation or none, {'CHANGED', `feedback` and `config` of the model's meta} other
--          settings are in force by now, and nothing was done; otherwise what the script says.
--
-- Kinds: u predictions not shown yet, g not shown but with a label, i impressions, c closed ones.
-- Id: the last 10 bytes of that of a prediction, which is two of 0 and a digest.
-- Value of u, g, i: stage (1 byte: its kind and label, see below), since when (u32, s), the state that was read (low
-- bits of the commit number, u16, and 4 bytes of its token), margin (f64), the 4 bytes of the prediction's id before,
-- then with a label its weight (f64), then flags (1 byte) and features as a record of the log has them. Value of c:
-- stage, since when, the label, or 'n' for none in time and 'l' for one that was late; then the position in the log,
-- or after 'n' what it was, from the commit number on, where a late label is learned too.
-- List: elements of up to a few ids each, in the order in which they began to wait. Named by kind and by when its ids
-- are due, in seconds, rounded up to a 30th of the kind's time; by other names where that time was changed since
-- (change_feedback.lua), and never before they are due. An id whose value has gone on to another list stays: it does
-- nothing there.
local incarnation, prefix = ARGV[1], ARGV[2]
local wait_of = {u = tonumber(ARGV[3]), g = tonumber(ARGV[4]), i = tonumber(ARGV[5]), c = tonumber(ARGV[6])}
local OWN, CHUNK = 15, 3000 -- the first argument of a script's own
local ENTRY_BYTES, LISTED_BYTES = 82, 11 -- beyond the value's own, and of an id in a list: measured, at most
local ID_BYTES, LISTED_TOGETHER = 10, 100
local REVISION, MARGIN, PREFIX, BODY = 6, 12, 20, 24 -- where the parts of a value begin
local WIDTHS = 30
local KIND_OF = {u = 'u', x = 'g', y = 'g', i = 'i', ['0'] = 'i', ['1'] = 'i', c = 'c'}
local LABEL_OF = {x = '0', y = '1', ['0'] = '0', ['1'] = '1'}
local STAGE_OF = {g = {['0'] = 'x', ['1'] = 'y'}, i = {['0'] = '0', ['1'] = '1'}}

local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'appended', 'applied_number', 'slices', 'feedback')
if meta[1] ~= incarnation then
  return {'GONE'}
end
if (meta[5] or '') ~= ARGV[14] then
  return {'CHANGED', meta[5] or '', redis.call('HGET', KEYS[1], 'config')}
end
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local since_now = struct.pack('<I4', math.floor(now))

local function kind_of(value) return KIND_OF[string.sub(value, 1, 1)] end
local function label_of(value) return LABEL_OF[string.sub(value, 1, 1)] end
local function since(value) return (struct.unpack('<I4', value, 2)) end
-- The list in which what waits since then is due; that second had begun already.
local function list_for(kind, seconds)
  local width = math.max(1, math.ceil(wait_of[kind] / WIDTHS))
  return kind .. math.ceil((seconds + 1 + wait_of[kind]) / width) * width
end
local function list_of(value) return list_for(kind_of(value), since(value)) end
local function is_due(value) return since(value) + 1 + wait_of[kind_of(value)] <= now end

local changes, listed = {}, {} -- field of the index -> what to add; list -> ids to add
local function change(field, by) changes[field] = (changes[field] or 0) + by end
local function count(what, by) change('#' .. what, by or 1) end

-- How many of a kind there are more, with values of so many bytes in all.
local function weigh(kind, number, bytes)
  change('=' .. kind, number)
  change('#bytes', bytes + number * ENTRY_BYTES)
end
-- Goes before any put: a server at its memory limit refuses a script that has only added so far.
local function take(id, value)
  redis.call('HDEL', KEYS[5], id)
  weigh(kind_of(value), -1, -#value)
end
-- Without listing it: where it takes the place of one that is due at the same time.
local function put_back(id, value)
  redis.call('HSET', KEYS[5], id, value)
  weigh(kind_of(value), 1, #value)
end
local function put(id, value)
  put_back(id, value)
  local list = list_of(value)
  listed[list] = listed[list] or {}
  table.insert(listed[list], id)
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

-- Writes the lists and the index; to be called once, at the end.
local function settle()
  for name, ids in pairs(listed) do add_to_list(name, ids) end
  local fields, changed = {}, {}
  for field in pairs(changes) do fields[#fields + 1] = field end
  if #fields == 0 then return end
  local old = redis.call('HMGET', KEYS[3], unpack(fields))
  -- Before the HSET, also of fields that are not there: a script that has only counted is refused no memory then.
  redis.call('HDEL', KEYS[3], unpack(fields))
  for k, field in ipairs(fields) do
    local value = tonumber(old[k] or 0) + changes[field]
    if value > 0 or not wait_of[string.sub(field, 1, 1)] then
      changed[#changed + 1] = field
      changed[#changed + 1] = value
    end
  end
  if #changed > 0 then redis.call('HSET', KEYS[3], unpack(changed)) end
end

-- id -> value of those that are there.
local function find(ids)
  local found = {}
  for start = 1, #ids, CHUNK do
    local stop = math.min(start + CHUNK - 1, #ids)
    local values = redis.call('HMGET', KEYS[5], unpack(ids, start, stop))
    for k = start, stop do found[ids[k]] = values[k - start + 1] or nil end
  end
  return found
end

local function without_label(value)
  if not label_of(value) then return value, struct.pack('<d', 1) end
  return string.sub(value, 1, BODY - 1) .. string.sub(value, BODY + 8), string.sub(value, BODY, BODY + 7)
end


-- Part of the scripts of logged predictions: what waits, in buckets by the time at which it is due.
--
-- KEYS: 1 meta, 2 log, 3 index of the buckets (hash: bucket -> bytes; '#bytes' their sum; '#joined' and so on:
--       how many ever), 4 slices; the keys of buckets follow from their names and share the hash tag
-- ARGV: 1 incarnation, 2 prefix of the buckets, how long each kind of bucket waits (s): 3 u, 4 g, 5 i, 6 c,
--       7 most bytes that may wait, 8 learn_at, 9 late, 10 negative_sample_rate,
--       11 most examples the backlog may hold, 12 most bytes and 13 most examples in one log entry
-- RETURNS: {'GONE'} another incarnation or none; otherwise what the script says.
--
-- Kinds of buckets: u predictions not shown yet, g not shown but with a label, i impressions, c closed ones.
-- A bucket is named by its kind and by when it is due, in seconds, rounded up to a 30th of its kind's time.
-- Field: the last 12 bytes of a prediction id, below called its id: with 16 the server takes the next larger
-- piece of memory. Value of u, g, i: state (1 byte: '-' no label, '0' or '1'), when it was shown (u32, s),
-- generation (u16) and commit (u32) that were read, margin (f64), the id's other 4 bytes, then with a label its
-- weight (f64), then flags (1 byte) and features as a record of the log has them. Value of c: the label, or 'n'
-- for none in time and 'l' for one that was late; then the position in the log, or after 'n' what it was, where
-- a late label is learned too.
local incarnation, prefix = ARGV[1], ARGV[2]
local wait_of = {u = tonumber(ARGV[3]), g = tonumber(ARGV[4]), i = tonumber(ARGV[5]), c = tonumber(ARGV[6])}
local most_waiting, at_arrival, late_too = tonumber(ARGV[7]), ARGV[8] == 'arrival', ARGV[9] == 'append'
local negative_rate, most_backlog = tonumber(ARGV[10]), tonumber(ARGV[11])
local OWN, CHUNK = 14, 3000 -- the first argument of a script's own
local FIELD_BYTES = 60 -- id and value in a hash, beyond the value's own bytes: measured, at most
local STATE, SHOWN, MARGIN, PREFIX, BODY = 1, 2, 12, 20, 24 -- where the parts of a value begin
local VERSION, SERVED, VALUES, WEIGHTED, WIDTHS = 1, 32, 4, 2, 30

local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'appended', 'applied_number', 'slices')
if meta[1] ~= incarnation then
  return {'GONE'}
end
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000

local function integer(number) return string.format('%.0f', number) end

-- The bucket for what begins to wait now.
local function bucket_of(kind)
  local width = math.max(1, math.ceil(wait_of[kind] / WIDTHS))
  return kind .. integer(math.ceil((now + wait_of[kind]) / width) * width)
end

local changes, counts = {}, {}
local function count(what, by)
  counts[what] = (counts[what] or 0) + (by or 1)
end
local function put(bucket, id, value)
  redis.call('HSET', prefix .. bucket, id, value)
  changes[bucket] = (changes[bucket] or 0) + #value + FIELD_BYTES
end
-- Goes before any put: a server at its memory limit refuses a script that has only added so far.
local function take(bucket, id, value)
  redis.call('HDEL', prefix .. bucket, id)
  changes[bucket] = (changes[bucket] or 0) - #value - FIELD_BYTES
end
-- Writes the index; to be called once, at the end.
local function settle()
  local sum = 0
  for bucket, bytes in pairs(changes) do
    sum = sum + bytes
    if redis.call('HINCRBY', KEYS[3], bucket, integer(bytes)) <= 0 then
      redis.call('HDEL', KEYS[3], bucket)
    end
  end
  if sum ~= 0 then redis.call('HINCRBY', KEYS[3], '#bytes', integer(sum)) end
  for what, by in pairs(counts) do
    redis.call('HINCRBY', KEYS[3], '#' .. what, integer(by))
  end
end

-- The names of all buckets, and the bytes of each.
local function index()
  local names, bytes = {}, {}
  local all = redis.call('HGETALL', KEYS[3])
  for k = 1, #all, 2 do
    if string.sub(all[k], 1, 1) ~= '#' then
      names[#names + 1] = all[k]
      bytes[all[k]] = tonumber(all[k + 1])
    end
  end
  return names, bytes
end

-- id -> {bucket, value} of those that are there, looking through the kinds in this order.
local function find(ids, kinds)
  local found, names = {}, index()
  local missing = ids
  for kind in string.gmatch(kinds, '.') do
    for _, name in ipairs(names) do
      if string.sub(name, 1, 1) == kind and #missing > 0 then
        local still = {}
        for start = 1, #missing, CHUNK do
          local stop = math.min(start + CHUNK - 1, #missing)
          local values = redis.call('HMGET', prefix .. name, unpack(missing, start, stop))
          for k = start, stop do
            local value = values[k - start + 1]
            if value then
              found[missing[k]] = {name, value}
            else
              still[#still + 1] = missing[k]
            end
          end
        end
        missing = still
      end
    end
  end
  return found
end

local function state_of(value) return string.sub(value, STATE, STATE) end
local function shown_at(value) return (struct.unpack('<I4', value, SHOWN)) end
local function shown_now(value)
  return string.sub(value, STATE, STATE) .. struct.pack('<I4', now) .. string.sub(value, SHOWN + 4)
end
local function with_label(value, label, weight)
  return label .. string.sub(value, SHOWN, BODY - 1) .. weight .. string.sub(value, BODY)
end
local function without_label(value)
  if state_of(value) == '-' then return value, struct.pack('<d', 1) end
  return '-' .. string.sub(value, SHOWN, BODY - 1) .. string.sub(value, BODY + 8), string.sub(value, BODY, BODY + 7)
end

-- The example as the log has it, of a value without label; weight: f64 as bytes.
local function record_of(id, value, label, weight)
  local flags, features = string.byte(value, BODY), string.sub(value, BODY + 1)
  local count_of = #features / (flags == VALUES and 12 or 4)
  flags = flags + SERVED + tonumber(label)
  if weight == struct.pack('<d', 1) then
    weight = ''
  else
    flags = flags + WEIGHTED
  end
  return struct.pack('<BBI4', VERSION, flags, count_of) .. weight
    .. string.sub(value, PREFIX, BODY - 1) .. id .. string.sub(value, MARGIN, PREFIX - 1) .. features
end

-- Whether this label 0 is learned, decided by the id alone.
local function is_sampled(id)
  return negative_rate >= 1 or struct.unpack('<I4', id, 9) / 4294967296 < negative_rate
end

local tombstones, closing, closed = {}, {}, nil
local writer = log_writer(KEYS[2], tonumber(meta[2]), tonumber(ARGV[12]), tonumber(ARGV[13]), function(id, position)
  local char = tombstones[id]
  put(closed, id, string.sub(char, 1, 1) == 'n' and char or char .. position)
  closing[id] = {closed, char .. position}
end)
-- Whoever learns the next entry has to know the values of sliced features that were noted since the one before.
local slices = redis.call('HLEN', KEYS[4])
if slices > tonumber(meta[4] or 0) then writer.told = {'s', slices} end
local room = most_backlog - (writer.appended - tonumber(meta[3])) -- examples that the log may still take

-- Appends the example, and remembers under `char` what became of it. `value` has been taken already.
local function close(id, value, label, weight, char)
  closed = closed or bucket_of('c')
  tombstones[id] = char
  if label == '0' and not is_sampled(id) then
    put(closed, id, char)
    count('unsampled')
    return
  end
  if label == '0' and negative_rate < 1 then
    weight = struct.pack('<d', struct.unpack('<d', weight) / negative_rate)
  end
  room = room - 1
  writer.add(record_of(id, value, label, weight), id)
end
local function finish()
  writer.flush()
  if writer.appended > tonumber(meta[2]) then
    redis.call('HSET', KEYS[1], 'appended', integer(writer.appended), 'slices', slices)
  end
  settle()
end


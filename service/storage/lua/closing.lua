-- Part of the scripts that may close predictions: each becomes an example of the log, and a few bytes of it stay,
-- so that repeated labels are recognized. After: backlog, log_writer, waiting, waiting_changes
local at_arrival, late_too = ARGV[8] == 'arrival', ARGV[9] == 'append'
local negative_rate, max_backlog = tonumber(ARGV[10]), tonumber(ARGV[11])
-- Stages: of g and i by the first byte of the label, of c also 'n' for none in time and 'l' for one that was late.
local STAGE_OF = {
  g = {['0'] = 'x', ['1'] = 'y', s = 's'}, i = {['0'] = '0', ['1'] = '1', s = 'S'},
  c = {['0'] = 'a', ['1'] = 'b', s = 't', n = 'n', l = 'l'}
}
local HEAVY_STAGE_OF = {g = {['0'] = 'X', ['1'] = 'Y'}, i = {['0'] = '2', ['1'] = '3'}}
local LABEL_OF = {
  x = '0', y = '1', X = '0', Y = '1', ['0'] = '0', ['1'] = '1', ['2'] = '0', ['3'] = '1',
  a = '0', b = '1', n = 'n', l = 'l'
}
local SOFT_LABEL_AT = {s = BODY, S = BODY, t = REVISION} -- by stage
local VERSION, SERVED, VALUES, WEIGHTED, SOFT_LABEL = 1, 32, 4, 2, 64

local function label_of(value)
  local at = SOFT_LABEL_AT[string.sub(value, 1, 1)]
  if at then return 's' .. string.sub(value, at, at + 7) end
  return LABEL_OF[string.sub(value, 1, 1)]
end
local function shown_now(value)
  local label, stages = label_of(value), is_heavy(value) and HEAVY_STAGE_OF.i or STAGE_OF.i
  return (label and stages[string.sub(label, 1, 1)] or 'i') .. since_now .. string.sub(value, REVISION)
end
-- Of one that has none.
local function with_label(value, kind, label, weight)
  if #label > 1 then
    return STAGE_OF[kind].s .. string.sub(value, 2, BODY - 1) .. string.sub(label, 2) .. weight
      .. string.sub(value, BODY)
  end
  if weight == WEIGHT_1 then return STAGE_OF[kind][label] .. string.sub(value, 2) end
  return HEAVY_STAGE_OF[kind][label] .. string.sub(value, 2, BODY - 1) .. weight .. string.sub(value, BODY)
end

-- The example as the log has it, of a value without label; weight: f64 as bytes.
local function record_of(id, value, label, weight)
  local flags, features = string.byte(value, BODY), string.sub(value, BODY + 1)
  local count_of = #features / (flags == VALUES and 12 or 4)
  flags = flags + SERVED + (tonumber(label) or SOFT_LABEL)
  if weight == WEIGHT_1 then
    weight = ''
  else
    flags = flags + WEIGHTED
  end
  return struct.pack('<BBI4', VERSION, flags, count_of) .. string.sub(label, 2) .. weight
    .. '\0\0' .. string.sub(value, PREFIX, BODY - 1) .. id .. string.sub(value, MARGIN, PREFIX - 1) .. features
end

-- Whether this label 0 is learned, decided by the id alone.
local function is_sampled(id)
  return negative_rate >= 1 or struct.unpack('<I4', id, #id - 3) / 4294967296 < negative_rate
end

local function closed_now(what) return STAGE_OF.c[string.sub(what, 1, 1)] .. since_now .. string.sub(what, 2) end
-- The outcome of a closed prediction (its label, 'n' or 'l'), and the rest of its value.
local function closed_as(value)
  local label = label_of(value)
  return label, string.sub(value, REVISION + #label - 1)
end

local tombstones = {} -- id -> what to remember
local writer = log_writer(KEYS[2], tonumber(meta[2]), clock.time)
local collector = log_collector(writer, tonumber(ARGV[12]), tonumber(ARGV[13]), function(id, position)
  local what = tombstones[id]
  put(id, closed_now(string.sub(what, 1, 1) == 'n' and what or what .. position))
  tombstones[id] = {position = position}
end)
-- The learner of the next entry has to know the values of sliced features noted since the entry before.
local slices = redis.call('HLEN', KEYS[4])
if slices > tonumber(meta[4] or 0) then writer.slices = slices end
local backlog, backlog_bytes = writer.appended - tonumber(meta[3]), bytes_of_backlog(meta[8], meta[2], meta[3])
local room = max_backlog - backlog -- examples that the log may still take
if backlog_bytes >= tonumber(ARGV[14]) then room = math.min(room, 0) end

-- Appends the example, and remembers `what` became of it. `value` has been taken already.
local function close(id, value, label, weight, what)
  tombstones[id] = what
  if label == '0' and not is_sampled(id) then
    put(id, closed_now(what))
    count('unsampled')
    return
  end
  if label == '0' and negative_rate < 1 then
    weight = struct.pack('<d', struct.unpack('<d', weight) / negative_rate)
  end
  room = room - 1
  collector.add(record_of(id, value, label, weight), id)
end
local function finish()
  collector.flush()
  if writer.appended > tonumber(meta[2]) then
    redis.call('HSET', KEYS[1], 'appended', writer.appended, 'slices', slices,
      'backlog_bytes', backlog_bytes + writer.bytes, clock_fields(clock))
  end
  settle()
end
-- Where in the log the example of an id is that was closed just now.
local function position_of(id)
  return type(tombstones[id]) == 'table' and tombstones[id].position or nil
end


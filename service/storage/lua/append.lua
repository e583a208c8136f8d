-- Appends one micro-batch of examples to the log: durable, ordered, each event once.
--
-- After: clock, backlog, log_writer, slice_names, positions
-- KEYS: 1 meta, 2 log, 3 slices
-- ARGV: 1 incarnation, 2 deadline (ms of the server's clock), 3 max examples in the backlog,
--       4 prefix of the event buckets, 5 how long an event id is remembered (s), 6 id of the micro-batch (12 bytes),
--       7 values of sliced features (evaluation/slice_names.py: pack_names), 8 max of them per feature,
--       9 bytes of the backlog from which on nothing is appended, 10 moves of positions (see positions.lua), or empty,
--       11 the examples to which the caller gave an event id, in order, 40 bytes each: index from 0 (u32), where its
--       record begins in its entry (u32) and the bytes that it takes (u32), the event id (16 bytes), and the id of an
--       earlier micro-batch whose append it may repeat (12 bytes, or zeros),
--       then for each entry: how many examples, and their records, one after another
-- RETURNS: {'APPENDED', receipt} also where this micro-batch had been appended before,
--          {'GONE'} there is no such incarnation, {'LATE'} past the deadline and never appended,
--          {'MOVED'} a position is another than the caller expects (nothing appended),
--          {'FULL', examples and bytes in the backlog}
-- A receipt reads  entry:count,entry:count|index=position,index=position  - the new entries in order, then the
-- examples that were left out as duplicates (index from 0; position "entry:offset" of the first, or empty).
-- Buckets are named by the hour of the model's time in which they began, and share the hash tag of KEYS. The field
-- `events` of meta lists them, the newest last, so that an append looks into those only that there are: about eight.
local incarnation, deadline, max_backlog = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local buckets, retention, batch_id = ARGV[4], tonumber(ARGV[5]), ARGV[6]
local slice_names, max_slice_names = ARGV[7], tonumber(ARGV[8])
local max_backlog_bytes = tonumber(ARGV[9])
local moves = moves_of(ARGV[10])
local claimed, CLAIM, NONE, CHUNK = ARGV[11], '<I4I4I4c16c12', string.rep('\0', 12), 3000 -- CLAIM: see scripts/log.py
local first_entry, count = 12, 0
for k = first_entry, #ARGV, 2 do count = count + tonumber(ARGV[k]) end

local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'appended', 'applied_number', 'slices', 'clock',
  'clock_seen', 'events', 'backlog_bytes')
if meta[1] ~= incarnation then
  return {'GONE'}
end
local clock = clock_of(meta[5], meta[6])
local HOUR, BUCKETS, SPARE = 3600, 8, 7 * 24 * 3600
local seconds = math.floor(clock.time / 1000000)
local hour, oldest = math.floor(seconds / HOUR), math.floor((seconds - retention) / HOUR)
local width = math.max(1, math.floor(retention / HOUR / BUCKETS)) -- hours that a bucket takes ids

local hours = {} -- in which the buckets began
if meta[7] then
  for began in string.gmatch(meta[7], '%d+') do hours[#hours + 1] = tonumber(began) end
else -- of a version that had one an hour and no list; where the clock was set back, also of the next hour
  for began = oldest, hour + 1 do
    if redis.call('EXISTS', buckets .. began) == 1 then hours[#hours + 1] = began end
  end
end
local newest, is_new, dropped = hours[#hours], false, {}
if not newest or hour - newest >= width then
  newest, is_new = hour, true
  hours[#hours + 1] = hour
  while #hours > 1 and hours[2] < oldest do -- the second began after the last id of the first
    dropped[#dropped + 1] = buckets .. table.remove(hours, 1)
  end
end

-- Claims of these ids, newest bucket first; false where there is none. A process of the version before may have made a
-- bucket for this hour.
local function claims(ids)
  local found = {}
  local function look_into(bucket)
    for start = 1, #ids, CHUNK do
      local stop = math.min(start + CHUNK - 1, #ids)
      local values = redis.call('HMGET', buckets .. bucket, unpack(ids, start, stop))
      for i = start, stop do
        found[i] = found[i] or values[i - start + 1]
      end
    end
  end
  if newest ~= hour then look_into(hour) end
  for k = #hours, 1, -1 do look_into(hours[k]) end
  return found
end

local receipt = claims({batch_id})[1]
if receipt then
  return {'APPENDED', receipt}
end
if math.floor(server_clock / 1000) > deadline then
  return {'LATE'}
end
if moves and not are_expected(KEYS[1], moves) then
  return {'MOVED'}
end
local backlog = tonumber(meta[2]) - tonumber(meta[3])
local backlog_bytes = bytes_of_backlog(meta[8], meta[2], meta[3])
if count > 0 and (backlog + count > max_backlog or backlog_bytes >= max_backlog_bytes) then
  return {'FULL', backlog, backlog_bytes}
end

local events, ids, asked = {}, {}, {}
for position = 1, #claimed, struct.size(CLAIM) do
  local index, start, size, id, repeats = struct.unpack(CLAIM, claimed, position)
  local event = {index = index, start = start, size = size, id = id}
  events[#events + 1] = event
  ids[#ids + 1], asked[#asked + 1] = id, event
  if repeats ~= NONE then
    ids[#ids + 1], asked[#asked + 1] = repeats, event
  end
end
for k, claim in pairs(claims(ids)) do
  if claim then -- of a duplicate: the position of the first, which that of a micro-batch does not say
    asked[k].first = asked[k].first or #ids[k] == 16 and claim or ''
  end
end

note_slice_names(KEYS[3], slice_names, max_slice_names)
local slices = redis.call('HLEN', KEYS[3])
-- The learner of the next entry has to know those noted since the entry before.
local has_new_slices = slices > tonumber(meta[4] or 0)

local duplicates, new_claims = {}, {}
local writer = log_writer(KEYS[2], tonumber(meta[2]), clock.time)
if has_new_slices then writer.slices = slices end
local own = {} -- event id -> its position, of those appended here
local index, next_event = 0, 1
for k = first_entry, #ARGV, 2 do
  local stop, records = index + tonumber(ARGV[k]), ARGV[k + 1]
  local repeated, left_out = {}, 0
  local kept, rest = {}, 1 -- what goes before the first byte (from 1) that is not looked at yet
  local offset_of = {} -- event id -> offset in the entry without what is left out
  while events[next_event] and events[next_event].index < stop do
    local event = events[next_event]
    next_event = next_event + 1
    if event.first or own[event.id] or offset_of[event.id] then
      repeated[#repeated + 1] = event
      kept[#kept + 1] = string.sub(records, rest, event.start)
      rest, left_out = event.start + event.size + 1, left_out + 1
    else
      offset_of[event.id] = event.index - index - left_out
    end
  end
  if left_out > 0 then records = table.concat(kept) .. string.sub(records, rest) end
  if left_out < stop - index then
    local id = writer.write(stop - index - left_out, records)
    for event, offset in pairs(offset_of) do
      own[event] = id .. ':' .. offset
      new_claims[#new_claims + 1], new_claims[#new_claims + 2] = event, own[event]
    end
  end
  for _, event in ipairs(repeated) do
    duplicates[#duplicates + 1] = event.index .. '=' .. (event.first or own[event.id])
  end
  index = stop
end

receipt = table.concat(writer.entries, ',') .. '|' .. table.concat(duplicates, ',')
new_claims[#new_claims + 1] = batch_id
new_claims[#new_claims + 1] = receipt
if #dropped > 0 then redis.call('UNLINK', unpack(dropped)) end
for start = 1, #new_claims, CHUNK do
  redis.call('HSET', buckets .. newest, unpack(new_claims, start, math.min(start + CHUNK - 1, #new_claims)))
end
-- Only buckets of a model that is no longer updated expire, and not where the server's clock jumps ahead by days.
redis.call('EXPIRE', buckets .. newest, retention + width * HOUR + SPARE)
if is_new or not meta[7] then redis.call('HSET', KEYS[1], 'events', table.concat(hours, ',')) end
-- One command with the positions: a server may run half of this at a restart (torn_tail.py).
local appended = {'appended', writer.appended, 'backlog_bytes', backlog_bytes + writer.bytes, clock_fields(clock)}
if moves then add_moves(appended, moves) end
redis.call('HSET', KEYS[1], unpack(appended))
if has_new_slices and #writer.entries > 0 then
  redis.call('HSET', KEYS[1], 'slices', slices)
end
return {'APPENDED', receipt}

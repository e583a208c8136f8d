-- Appends one micro-batch of examples to the log: durable, ordered, each event once.
--
-- After: log_writer, slice_names
-- KEYS: 1 meta, 2 log, 3 slices
-- ARGV: 1 incarnation, 2 deadline (ms of the server's clock), 3 max examples in the backlog,
--       4 prefix of the event buckets, 5 how long an event id is kept (s), 6 id of the micro-batch (12 bytes),
--       7 max bytes and 8 max examples in one log entry,
--       9 values of sliced features (evaluation/slice_names.py: pack_names), 10 max of them per feature,
--       11 how many examples, then their records, then for each to which the caller gave an event id:
--       its index from 0, the event id (16 bytes), and the id of an earlier micro-batch whose append it may
--       repeat (12 bytes, or empty)
-- RETURNS: {'APPENDED', receipt} also where this micro-batch had been appended before,
--          {'GONE'} there is no such incarnation, {'LATE'} past the deadline and never appended, {'FULL', backlog}
-- A receipt reads  entry:count,entry:count|index=position,index=position  - the new entries in order, then the
-- examples that were left out as duplicates (index from 0; position "entry:offset" of the first, or empty).
-- The bucket keys follow from the server's hour and share the hash tag of KEYS.
local incarnation, deadline, max_backlog = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local buckets, retention, batch_id = ARGV[4], tonumber(ARGV[5]), ARGV[6]
local max_bytes, max_examples = tonumber(ARGV[7]), tonumber(ARGV[8])
local slice_names, max_slice_names = ARGV[9], tonumber(ARGV[10])
local count, first_record, CHUNK = tonumber(ARGV[11]), 12, 3000
local first_event = first_record + count
local event_of, repeats_of = {}, {} -- by index; nil for most
for argument = first_event, #ARGV, 3 do
  local i = tonumber(ARGV[argument])
  event_of[i], repeats_of[i] = ARGV[argument + 1], ARGV[argument + 2]
end

local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'appended', 'applied_number', 'slices')
if meta[1] ~= incarnation then
  return {'GONE'}
end
local time = redis.call('TIME')
local seconds = tonumber(time[1])
local hour = math.floor(seconds / 3600)
local oldest = math.floor((seconds - retention) / 3600)

-- Claims of these ids, newest bucket first; false where there is none. The next hour has some where the
-- clock was set back.
local function claims(ids)
  local found = {}
  for bucket = hour + 1, oldest, -1 do
    for start = 1, #ids, CHUNK do
      local stop = math.min(start + CHUNK - 1, #ids)
      local values = redis.call('HMGET', buckets .. bucket, unpack(ids, start, stop))
      for i = start, stop do
        found[i] = found[i] or values[i - start + 1]
      end
    end
  end
  return found
end

local receipt = claims({batch_id})[1]
if receipt then
  return {'APPENDED', receipt}
end
if seconds * 1000 + math.floor(tonumber(time[2]) / 1000) > deadline then
  return {'LATE'}
end
local backlog = tonumber(meta[2]) - tonumber(meta[3])
if backlog + count > max_backlog then
  return {'FULL', backlog}
end

local ids, asked = {}, {}
for i, event in pairs(event_of) do
  ids[#ids + 1] = event
  asked[#asked + 1] = i
  if repeats_of[i] ~= '' then
    ids[#ids + 1] = repeats_of[i]
    asked[#asked + 1] = i
  end
end
local position_of = {} -- index of a duplicate -> position of the first
for k, claim in pairs(claims(ids)) do
  if claim then
    position_of[asked[k]] = #ids[k] == 16 and claim or ''
  end
end

note_slice_names(KEYS[3], slice_names, max_slice_names)
local slices = redis.call('HLEN', KEYS[3])
-- The learner of the next entry has to know those noted since the entry before.
local has_new_slices = slices > tonumber(meta[4] or 0)

local duplicates, new_claims, unplaced, own = {}, {}, {}, {}
local writer = log_writer(KEYS[2], tonumber(meta[2]), max_bytes, max_examples, function(event, position)
  new_claims[#new_claims + 1] = event
  new_claims[#new_claims + 1] = position
  own[event], unplaced[event] = position, nil
end)
if has_new_slices then writer.leading = {'s', slices} end
for i = 0, count - 1 do
  local event, record = event_of[i], ARGV[first_record + i]
  if event and unplaced[event] then writer.flush() end -- so that its position is known
  local position = event and (position_of[i] or own[event])
  if position then
    duplicates[#duplicates + 1] = i .. '=' .. position
  else
    if event then unplaced[event] = true end
    writer.add(record, event)
  end
end
writer.flush()

receipt = table.concat(writer.entries, ',') .. '|' .. table.concat(duplicates, ',')
new_claims[#new_claims + 1] = batch_id
new_claims[#new_claims + 1] = receipt
for start = 1, #new_claims, CHUNK do
  redis.call('HSET', buckets .. hour, unpack(new_claims, start, math.min(start + CHUNK - 1, #new_claims)))
end
redis.call('EXPIRE', buckets .. hour, retention + 3600)
redis.call('HSET', KEYS[1], 'appended', writer.appended)
if has_new_slices and #writer.entries > 0 then
  redis.call('HSET', KEYS[1], 'slices', slices)
end
return {'APPENDED', receipt}

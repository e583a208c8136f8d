-- Finds examples in the log by where they were appended, each by what its entry must contain: after a failover another
-- one may have the same id.
--
-- After: log_ids, log_entry
-- KEYS: 1 meta, 2 log
-- ARGV: 1 incarnation, then for each example: id of its entry, part of its record
-- RETURNS: {} there is no such incarnation; else a letter for each: F found, T not there, but the log may have been
--          trimmed past it, L lost
local incarnation, FIRST = ARGV[1], 2
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'applied')
if meta[1] ~= incarnation then
  return {}
end

local oldest = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
local read, records -- the entry that was read last: examples that stand together come together
local function is_in_log(id, part)
  if id ~= read then
    local entry = redis.call('XRANGE', KEYS[2], id, id)[1]
    read, records = id, entry and select(3, examples_of(entry[2]))
  end
  return records and string.find(records, part, 1, true)
end
-- Only what is applied is trimmed, and only from the front.
local function may_be_trimmed(id)
  return not before(meta[2] or '0-0', id) and not (oldest and not before(id, oldest[1]))
end

local answers = {}
for i = FIRST, #ARGV, 2 do
  local id = ARGV[i]
  local answer = 'L'
  if is_in_log(id, ARGV[i + 1]) then
    answer = 'F'
  elseif may_be_trimmed(id) then
    answer = 'T'
  end
  answers[#answers + 1] = answer
end
return answers

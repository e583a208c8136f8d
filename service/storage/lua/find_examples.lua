-- Finds examples in the log by where they were appended, each by what its record must contain there: after a failover
-- another entry may have the same id.
--
-- After: log_ids
-- KEYS: 1 meta, 2 log
-- ARGV: 1 incarnation, then for each example: id of its entry, offset in that, part of its record
-- RETURNS: {} there is no such incarnation; else a letter for each: F found, T not there, but the log may have been
--          trimmed past it, L lost
local incarnation, FIRST = ARGV[1], 2
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'applied')
if meta[1] ~= incarnation then
  return {}
end

local oldest = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
local read, fields -- the entry that was read last: examples that stand together come together
local function is_in_log(id, offset, part)
  if id ~= read then
    local entry = redis.call('XRANGE', KEYS[2], id, id)[1]
    read, fields = id, entry and entry[2]
  end
  if not fields then return false end
  local before_records = fields[3] == 's' and 4 or 2
  local record = fields[before_records + 2 * offset + 2]
  return record and string.find(record, part, 1, true)
end
-- Only what is applied is trimmed, and only from the front.
local function may_be_trimmed(id)
  return not before(meta[2] or '0-0', id) and not (oldest and not before(id, oldest[1]))
end

local answers = {}
for i = FIRST, #ARGV, 3 do
  local id = ARGV[i]
  local answer = 'L'
  if is_in_log(id, tonumber(ARGV[i + 1]), ARGV[i + 2]) then
    answer = 'F'
  elseif may_be_trimmed(id) then
    answer = 'T'
  end
  answers[#answers + 1] = answer
end
return answers

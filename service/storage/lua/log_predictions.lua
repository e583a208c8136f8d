-- Logs predictions, some of which may have been logged before, until they are shown or, if they are impressions already,
-- until their labels come.
--
-- After: waiting, waiting_changes
-- KEYS, and ARGV 1 to 15: see waiting.lua
-- ARGV: 16 'i' where a prediction is an impression, else 'u'; then for each prediction: its id, its value from the commit
--       number on
-- RETURNS: {'LOGGED', per prediction a letter: L logged, S known with the same features, X known with
--          others, F no room}
local VALUES = 4 -- flag of a record, see model_core/examples/records.py
local kind = ARGV[OWN]
local head, head_bytes = kind .. since_now, REVISION - 1
local left = tonumber(ARGV[7]) - tonumber(redis.call('HGET', KEYS[3], '#bytes') or 0)

local asked = {}
for k = OWN + 1, #ARGV, 2 do asked[#asked + 1] = ARGV[k] end
local known = find(asked)
-- How often each feature is there: of a record, from its flags on.
local function counted(body)
  local number = (#body - 1) / (string.byte(body) == VALUES and 12 or 4)
  local counts = {}
  for k = 1, number do
    local at = 2 + 4 * number + 8 * (k - 1)
    local feature = string.sub(body, 4 * k - 2, 4 * k + 1) .. string.sub(body, at, at + 7)
    counts[feature] = (counts[feature] or 0) + 1
  end
  return counts
end
-- In whatever order: the maps of callers may have none.
local function same_features(one, other)
  if one == other then return true end
  if #one ~= #other or string.byte(one) ~= string.byte(other) then return false end
  local counts = counted(other)
  for feature, number in pairs(counted(one)) do
    if counts[feature] ~= number then return false end
  end
  return true
end
local function same(found, value)
  if kind_of(found) == 'c' then return true end -- its features are no longer known
  return same_features(string.sub(without_label(found), BODY), string.sub(value, BODY - head_bytes))
end

local answers, stored, ids, bytes = {}, {}, {}, 0 -- stored: hash -> id, value, ...
for k = OWN + 1, #ARGV, 2 do
  local id, value = ARGV[k], ARGV[k + 1]
  local size = bytes_of(head_bytes + #value)
  local answer
  if known[id] then
    answer = same(known[id], value) and 'S' or 'X'
    count(answer == 'S' and 'repeated' or 'conflict')
  elseif size + LISTED_BYTES > left then
    answer = 'F'
    count('refused')
  else
    left = left - size - LISTED_BYTES
    bytes = bytes + size
    value = head .. value
    ids[#ids + 1] = id
    local hash = hash_of(id)
    local fields = stored[hash] or {}
    stored[hash] = fields
    fields[#fields + 1] = id
    fields[#fields + 1] = value
    known[id] = value
    answer = 'L'
  end
  answers[#answers + 1] = answer
end
for hash, fields in pairs(stored) do
  for start = 1, #fields, 2 * CHUNK do
    redis.call('HSET', hash, unpack(fields, start, math.min(start + 2 * CHUNK - 1, #fields)))
  end
end
if #ids > 0 then
  weigh(kind, #ids, bytes)
  count('logged', #ids)
  listed[list_for(kind, math.floor(now))] = ids
end
settle()
return {'LOGGED', table.concat(answers)}

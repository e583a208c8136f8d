-- Keeps predictions until they are shown, or, where they are impressions already, until their label.
--
-- After: waiting
-- ARGV: 15 'i' where a prediction is an impression, else 'u'; 16 '1' to look whether the ids are known;
--       then for each prediction: its id, its value from the commit number on
-- RETURNS: {'LOGGED', per prediction a letter: L logged, S known with the same features, X known with others,
--           F no room}
local kind, looks = ARGV[OWN], ARGV[OWN + 1] == '1'
local head, head_bytes = kind .. since_now, REVISION - 1
local left = tonumber(ARGV[7]) - tonumber(redis.call('HGET', KEYS[3], '#bytes') or 0)

local known = {}
if looks then
  local ids = {}
  for k = OWN + 2, #ARGV, 2 do ids[#ids + 1] = ARGV[k] end
  known = find(ids)
end
local function same(found, value)
  if kind_of(found) == 'c' then return true end -- its features are no longer known
  return string.sub(without_label(found), BODY) == string.sub(value, BODY - head_bytes)
end

local answers, fields, ids, bytes = {}, {}, {}, 0
for k = OWN + 2, #ARGV, 2 do
  local id, value = ARGV[k], ARGV[k + 1]
  local size = head_bytes + #value + ENTRY_BYTES + LISTED_BYTES
  local answer
  if looks and known[id] then
    answer = same(known[id], value) and 'S' or 'X'
    count(answer == 'S' and 'repeated' or 'conflict')
  elseif size > left then
    answer = 'F'
    count('refused')
  else
    left = left - size
    value = head .. value
    ids[#ids + 1] = id
    fields[#fields + 1] = id
    fields[#fields + 1] = value
    bytes = bytes + #value
    if looks then known[id] = value end
    answer = 'L'
  end
  answers[#answers + 1] = answer
end
for start = 1, #fields, 2 * CHUNK do
  redis.call('HSET', KEYS[5], unpack(fields, start, math.min(start + 2 * CHUNK - 1, #fields)))
end
if #ids > 0 then
  weigh(kind, #ids, bytes)
  count('logged', #ids)
  listed[list_for(kind, math.floor(now))] = ids
end
settle()
return {'LOGGED', table.concat(answers)}

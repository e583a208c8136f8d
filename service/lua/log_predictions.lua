-- Keeps predictions until they are shown, or, where they are impressions already, until their label.
--
-- After: log_writer, waiting
-- ARGV: 14 'i' where a prediction is an impression, else 'u'; 15 '1' to look whether the ids are known;
--       then for each prediction: its id, its value
-- RETURNS: {'LOGGED', per prediction a letter: L logged, S known with the same features, X known with others,
--           F no room}
local kind, looks = ARGV[OWN], ARGV[OWN + 1] == '1'
local bucket = bucket_of(kind)
local left = most_waiting - tonumber(redis.call('HGET', KEYS[3], '#bytes') or 0)

local known = {}
if looks then
  local ids = {}
  for k = OWN + 2, #ARGV, 2 do ids[#ids + 1] = ARGV[k] end
  known = find(ids, 'uigc')
end
local function same(found, value)
  if string.sub(found[1], 1, 1) == 'c' then return true end -- its features are no longer known
  return string.sub(without_label(found[2]), BODY) == string.sub(value, BODY)
end

local answers = {}
for k = OWN + 2, #ARGV, 2 do
  local id, value = ARGV[k], ARGV[k + 1]
  local answer
  if known[id] then
    answer = same(known[id], value) and 'S' or 'X'
    count(answer == 'S' and 'repeated' or 'conflict')
  elseif #value + FIELD_BYTES > left then
    answer = 'F'
    count('refused')
  else
    left = left - #value - FIELD_BYTES
    put(bucket, id, kind == 'i' and shown_now(value) or value)
    known[id] = {bucket, value}
    answer = 'L'
    count('logged')
  end
  answers[#answers + 1] = answer
end
settle()
return {'LOGGED', table.concat(answers)}

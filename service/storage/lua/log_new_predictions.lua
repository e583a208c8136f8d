-- Logs predictions under ids that were made for them, as log_predictions.lua does, but looks up none: the common case.
--
-- After: waiting
-- KEYS, and ARGV 1 to 15: see waiting.lua
-- ARGV: from 16 on as in log_predictions.lua
-- RETURNS: {'LOGGED', per prediction a letter: L logged, F no room}
local kind = ARGV[OWN]
local head = kind .. since_now
local name = list_for(kind, math.floor(now))
local index = redis.call('HMGET', KEYS[3], '#bytes', '#logged', '#refused', '=' .. kind, name)
local function plus(k, more) return tonumber(index[k] or 0) + more end
local left = tonumber(ARGV[7]) - plus(1, 0)

local answers, stored, ids, bytes = {}, {}, {}, 0 -- stored: hash -> id, value, ...
for k = OWN + 1, #ARGV, 2 do
  local id, value = ARGV[k], head .. ARGV[k + 1]
  local size = bytes_of(#value)
  if size + LISTED_BYTES > left then
    answers[#answers + 1] = 'F'
  else
    answers[#answers + 1] = 'L'
    left = left - size - LISTED_BYTES
    bytes = bytes + size + LISTED_BYTES
    ids[#ids + 1] = id
    local hash = hash_of(id)
    local fields = stored[hash]
    if not fields then
      fields = {}
      stored[hash] = fields
    end
    fields[#fields + 1] = id
    fields[#fields + 1] = value
  end
end
for hash, fields in pairs(stored) do
  for start = 1, #fields, 2 * CHUNK do
    redis.call('HSET', hash, unpack(fields, start, math.min(start + 2 * CHUNK - 1, #fields)))
  end
end
local refused = #answers - #ids
if refused > 0 then
  redis.call('HDEL', KEYS[3], '') -- of what is not there: a script that has only counted is refused no memory then
  redis.call('HSET', KEYS[3], '#refused', plus(3, refused))
end
if #ids > 0 then
  push_to_list(name, ids)
  redis.call('HSET', KEYS[3], '#bytes', plus(1, bytes), '#logged', plus(2, #ids), '=' .. kind, plus(4, #ids),
    name, plus(5, #ids * LISTED_BYTES))
end
settle_time()
return {'LOGGED', table.concat(answers)}

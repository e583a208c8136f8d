-- Adds the figures of this moment to a model's history, and marks of what happened since the ones before.
-- KEYS: 1 meta, 2 history by seconds, 3 history by minutes, 4 marks, 5 what the marks follow on
-- ARGV: 1 incarnation, 2 token that the figures follow from, or '' if there are only marks, 3 figures,
--       4 how many the first history holds, 5 step of the second (ms), 6 how many it holds, 7 how many marks
--       there are at most, 8 what the next marks follow on, or '' if that stays, 9.. kind and detail of each
--       mark, last: for clock.lua
-- RETURNS: 1 added, 0 the model moved on (nothing changed)
-- The ids are the model's time, which never goes back.
local incarnation, token, figures, max_seconds = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local step, max_minutes, max_marks, seen, FIRST_MARK = tonumber(ARGV[5]), ARGV[6], ARGV[7], ARGV[8], 9
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'token', 'clock', 'clock_seen')
if meta[1] ~= incarnation or (token ~= '' and meta[2] ~= token) then
  return 0
end
local now = math.floor(clock_of(meta[3], meta[4]).time / 1000)

local function newest(stream)
  local entry = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  if not entry then return -1, -1 end
  local ms, sequence = string.match(entry[1], '(%d+)-(%d+)')
  return tonumber(ms), tonumber(sequence)
end
local function add(stream, most, ...)
  local ms, sequence = newest(stream)
  local id = ms >= now and string.format('%.0f-%.0f', ms, sequence + 1) or string.format('%.0f-0', now)
  redis.call('XADD', stream, 'MAXLEN', most, id, ...)
end

if token ~= '' then
  add(KEYS[2], max_seconds, 'r', figures)
  if math.floor(newest(KEYS[3]) / step) < math.floor(now / step) then add(KEYS[3], max_minutes, 'r', figures) end
end
for k = FIRST_MARK, #ARGV, 2 do
  add(KEYS[4], max_marks, 'kind', ARGV[k], 'detail', ARGV[k + 1])
end
if seen ~= '' then redis.call('SET', KEYS[5], seen) end
return 1

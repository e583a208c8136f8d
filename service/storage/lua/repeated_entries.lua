-- Finds entries of the log whose numbers a later entry has too: a server ran half of an append (torn_tail.py), which no
-- process had acknowledged, and the numbers were given again. Changes nothing.
--
-- KEYS: 1 meta, 2 log
-- ARGV: 1 incarnation, 2 id after which to read, or '' for the start of the log, 3 max entries to read
-- RETURNS: {} there is no such incarnation; else {id to go on after, or '' at the end of the log, an entry, ...}
local incarnation, after, count = ARGV[1], ARGV[2], tonumber(ARGV[3])
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'appended')
if meta[1] ~= incarnation then
  return {}
end
local function number_of(entry) return entry[2][1] == 'n' and tonumber(entry[2][2]) end

local found = redis.call('XRANGE', KEYS[2], after == '' and '-' or '(' .. after, '+', 'COUNT', count)
local at_end = #found < count
local reply = {at_end and '' or found[#found][1]}
-- Those just before `last` that begin with this number or a later one.
local function add_before(last, number)
  local entry = redis.call('XREVRANGE', KEYS[2], last, '-', 'COUNT', 1)[1]
  while entry and number_of(entry) and number_of(entry) >= number do
    reply[#reply + 1] = entry
    entry = redis.call('XREVRANGE', KEYS[2], '(' .. entry[1], '-', 'COUNT', 1)[1]
  end
end
local before = 0 -- the number of the entry before; that of the first is looked up
for k, entry in ipairs(found) do
  local number = number_of(entry)
  if number and (k == 1 or number <= before) then add_before('(' .. entry[1], number) end
  before = number or before
end
if at_end then add_before('+', tonumber(meta[2])) end
return reply

-- Finds the log entries that the server has lost, of those whose append it has acknowledged.
--
-- After: log_ids
-- KEYS: 1 meta, 2 log
-- ARGV: 1 incarnation, then ids of entries
-- RETURNS: indices (from 0) of entries that are not in the log although nothing has trimmed them; none if there
--          is no such incarnation: a model that was deleted has lost nothing
local incarnation, FIRST_ID = ARGV[1], 2
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'applied')
if meta[1] ~= incarnation then
  return {}
end

local first = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
local lost = {}
for i = FIRST_ID, #ARGV do
  local id = ARGV[i]
  -- Only what is applied is trimmed, and only from the front.
  local trimmed = not before(meta[2] or '0-0', id) and not (first and before(first[1], id))
  if not trimmed and #redis.call('XRANGE', KEYS[2], id, id) == 0 then
    lost[#lost + 1] = i - FIRST_ID
  end
end
return lost

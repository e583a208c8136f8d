-- Changes in place how labels are awaited, unless another change came first.
-- KEYS: 1 meta, 2 index of the pending predictions (see waiting.lua)
-- ARGV: 1 incarnation, 2 `feedback` that the caller has read, or empty, 3 the new one, 4 prefix of the lists,
--       then for each kind that waits longer or shorter: its letter, by how many whole seconds
-- RETURNS: 1 changed, 0 there is another one by now (nothing changed), -1 there is no such incarnation
-- What waits is due so much later or earlier. Its lists get other names, so that it takes no longer for more of it;
-- the keys of lists share the hash tag. A list never comes later than what is in it is due: those of u, where what was
-- shown since waits too, come earlier with either of these, and as they did where both wait longer. Those of g say when
-- a prediction without label would be forgotten, their values when the grace is over: they are due with the later.
local incarnation, so_far, feedback, prefix = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'feedback')
if meta[1] ~= incarnation then
  return -1
end
if (meta[2] or '') ~= so_far then
  return 0
end

-- The new name is renamed out of the way first; a user who may not rename has changed nothing.
local function rename(old, new)
  if redis.call('EXISTS', prefix .. old) == 1 and redis.call('RENAMENX', prefix .. old, prefix .. new) == 0 then
    return -- it stays as it is: the sweep checks each id
  end
  local bytes = redis.call('HGET', KEYS[2], old)
  redis.call('HDEL', KEYS[2], old) -- on a full server only a script that has written is given memory
  redis.call('HSET', KEYS[2], new, bytes)
end
local function shift(kind, seconds)
  local due = {}
  for _, name in ipairs(redis.call('HKEYS', KEYS[2])) do
    if string.sub(name, 1, 1) == kind then due[#due + 1] = tonumber(string.sub(name, 2)) end
  end
  table.sort(due, function(a, b)
    if seconds > 0 then return a > b end
    return a < b
  end)
  for _, at in ipairs(due) do
    rename(string.format('%s%.0f', kind, at), string.format('%s%.0f', kind, at + seconds))
  end
end

local longer = {u = 0, g = 0, i = 0, c = 0}
for k = 5, #ARGV, 2 do longer[ARGV[k]] = tonumber(ARGV[k + 1]) end
longer.u = math.min(longer.u, longer.i, 0)
for kind, seconds in pairs(longer) do
  if seconds ~= 0 then shift(kind, seconds) end
end
redis.call('HDEL', KEYS[1], 'feedback')
redis.call('HSET', KEYS[1], 'feedback', feedback)
return 1

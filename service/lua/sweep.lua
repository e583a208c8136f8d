-- Closes what is due: impressions become examples, with the label that they have or else 0; predictions that
-- were never shown, labels whose impression never came and what was remembered of closed ones are forgotten.
--
-- After: log_writer, waiting
-- ARGV: 14 most impressions to close
-- RETURNS: {'SWEPT', 1 where more is due, bytes that wait, milliseconds since the oldest open impression was
--           shown, how many wait in u, g, i, c, then of the counts: name, number, ...}
local left = tonumber(ARGV[OWN])
local names, bytes = index()
local COUNTED = {u = 'never_shown', g = 'orphan', c = false}

local function due(name) return tonumber(string.sub(name, 2)) <= now end

local function drop(name)
  local what = COUNTED[string.sub(name, 1, 1)]
  if what then count(what, redis.call('HLEN', prefix .. name)) end
  redis.call('UNLINK', prefix .. name)
  changes[name] = -bytes[name]
end

-- In the order in which they were shown.
local function some_of(name)
  local flat = redis.call('HRANDFIELD', prefix .. name, math.min(left, room), 'WITHVALUES')
  local some = {}
  for k = 1, #flat, 2 do some[#some + 1] = {flat[k], flat[k + 1], shown_at(flat[k + 1])} end
  table.sort(some, function(a, b)
    if a[3] ~= b[3] then return a[3] < b[3] end
    return a[1] < b[1]
  end)
  return some
end

local function close_some(name)
  for _, one in ipairs(some_of(name)) do
    local id, value = one[1], one[2]
    take(name, id, value)
    left = left - 1
    local label, bare, weight = state_of(value), without_label(value)
    if label == '-' then
      close(id, bare, '0', weight, late_too and 'n' .. bare or 'n')
      count('negative')
    else
      close(id, bare, label, weight, label)
      count('joined')
    end
  end
end

table.sort(names, function(a, b) return string.sub(a, 2) < string.sub(b, 2) end)
for _, name in ipairs(names) do
  if due(name) then
    if string.sub(name, 1, 1) ~= 'i' then
      drop(name)
    elseif left > 0 and room > 0 then
      close_some(name)
    end
  end
end
finish()

local more, oldest, waiting = 0, now, {u = 0, g = 0, i = 0, c = 0}
for _, name in ipairs((index())) do
  local kind = string.sub(name, 1, 1)
  waiting[kind] = waiting[kind] + redis.call('HLEN', prefix .. name)
  if due(name) then more = 1 end
  if kind == 'i' then oldest = math.min(oldest, tonumber(string.sub(name, 2)) - wait_of.i) end
end
local reply = {
  'SWEPT', more, tonumber(redis.call('HGET', KEYS[3], '#bytes') or 0), math.floor((now - oldest) * 1000),
  waiting.u, waiting.g, waiting.i, waiting.c
}
local all = redis.call('HGETALL', KEYS[3])
for k = 1, #all, 2 do
  if string.sub(all[k], 1, 1) == '#' and all[k] ~= '#bytes' then
    reply[#reply + 1] = string.sub(all[k], 2)
    reply[#reply + 1] = tonumber(all[k + 1])
  end
end
return reply

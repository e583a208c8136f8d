-- Closes what is due: impressions become examples, with the label that they have or else 0; predictions that
-- were never shown, labels whose impression never came and what was remembered of closed ones are forgotten.
--
-- After: backlog, log_writer, waiting, closing
-- KEYS, and ARGV 1 to 15: see waiting.lua
-- ARGV: 16 max impressions to close
-- RETURNS: {'SWEPT', 1 where more is due and can be closed now, bytes of pending predictions, milliseconds since the
--           oldest open impression was shown, numbers in u, g, i, c, then of the totals: name, number, ...}
local left = tonumber(ARGV[OWN])
local COUNTED = {u = 'never_shown', g = 'orphan'}
local MAX_READ = 10 -- elements of lists, for the oldest open impression
local FORGOTTEN = 1 / 4 -- cost relative to closing one

-- The names of all lists, by due time.
local function lists()
  local names = {}
  for _, name in ipairs(redis.call('HKEYS', KEYS[3])) do
    if wait_of[string.sub(name, 1, 1)] then names[#names + 1] = name end
  end
  table.sort(names, function(a, b)
    local of_a, of_b = string.sub(a, 2), string.sub(b, 2)
    if of_a == of_b then return a > b end -- of u before those of i, where what is shown goes on to
    return of_a < of_b
  end)
  return names
end
local function due(name) return tonumber(string.sub(name, 2)) <= now end

-- Lists an id again that was listed too early, or under a kind that it had before.
local function list_again(id, value)
  list(id, value)
  left = left - FORGOTTEN
end

-- ids and values of the first element of a list that are due, and whether there was one.
local function next_of(name)
  if listed[name] then
    add_to_list(name, listed[name])
    listed[name] = nil
  end
  local element = redis.call('LPOP', prefix .. name)
  if not element then
    redis.call('HDEL', KEYS[3], name)
    changes[name] = nil
    return {}, {}, false
  end
  local all, ids, seen, in_list = {}, {}, {}, string.sub(name, 1, 1)
  for at = 1, #element, ID_BYTES do all[#all + 1] = string.sub(element, at, at + ID_BYTES - 1) end
  change(name, -#all * LISTED_BYTES)
  change('#bytes', -#all * LISTED_BYTES)
  local found = find(all)
  for _, id in ipairs(all) do
    local value = found[id]
    local kind = value and kind_of(value)
    if value and not seen[id] and (kind == in_list or kind == 'i' and in_list == 'u') then
      seen[id] = true
      if kind == in_list and is_due(value) then
        ids[#ids + 1] = id
      else
        list_again(id, value)
      end
    end
  end
  return ids, found, true
end

local function forget(kind, ids, values)
  if #ids == 0 then return end
  local number, bytes = #ids, 0
  for hash, some in pairs(by_hash(ids)) do
    redis.call('HDEL', hash, unpack(some))
    for _, id in ipairs(some) do bytes = bytes + bytes_of(#values[id]) end
  end
  weigh(kind, -number, -bytes)
  if COUNTED[kind] then count(COUNTED[kind], number) end
  left = left - number * FORGOTTEN
end

local function close_one(id, value)
  take(id, value)
  left = left - 1
  local label, bare, weight = label_of(value), without_label(value)
  if label then
    close(id, bare, label, weight, label)
    count('joined')
  else
    close(id, bare, '0', weight, late_too and 'n' .. string.sub(bare, REVISION) or 'n')
    count('negative')
  end
end

-- Closes impressions while the backlog has room; the others return to the front of the list.
local function close_some(name, ids, values)
  local kept = {}
  for _, id in ipairs(ids) do
    if left > 0 and room > 0 then
      close_one(id, values[id])
    else
      kept[#kept + 1] = id
    end
  end
  if #kept == 0 then return end
  redis.call('LPUSH', prefix .. name, table.concat(kept))
  change(name, #kept * LISTED_BYTES)
  change('#bytes', #kept * LISTED_BYTES)
end

for _, name in ipairs(lists()) do
  local kind, more = string.sub(name, 1, 1), due(name)
  while more and left > 0 and (kind ~= 'i' or room > 0) do
    local ids, values
    ids, values, more = next_of(name)
    if kind == 'i' then
      close_some(name, ids, values)
    else
      forget(kind, ids, values)
    end
  end
end
finish()

-- The earliest exposure among the open impressions of an element of a list, nil where it has none.
local function shown_first(element)
  local ids, first = {}, nil
  for at = 1, #element, ID_BYTES do ids[#ids + 1] = string.sub(element, at, at + ID_BYTES - 1) end
  for _, value in pairs(find(ids)) do
    if kind_of(value) == 'i' then first = math.min(first or now, since(value)) end
  end
  return first
end
local function shown_about(name) return tonumber(string.sub(name, 2)) - wait_of.i - 1 end
-- When the oldest open impression was shown; only about when, as its list says, behind many that are closed, and while
-- it may still be in the list where it was as one not shown.
local function oldest_open(names)
  local left_to_read, moved_by = MAX_READ, now - wait_of.u * (1 + 1 / WIDTHS) - 3
  for _, name in ipairs(names) do
    local elements = redis.call('LRANGE', prefix .. name, 0, left_to_read)
    if #elements == 0 and shown_about(name) > moved_by then return shown_about(name) end
    for _, element in ipairs(elements) do
      if left_to_read == 0 then return shown_about(name) end
      left_to_read = left_to_read - 1
      local first = shown_first(element)
      if first then return first end
    end
  end
  return now
end

local more, opened = 0, {}
for _, name in ipairs(lists()) do
  local is_open = string.sub(name, 1, 1) == 'i'
  if due(name) and (room > 0 or not is_open) then more = 1 end
  if is_open then opened[#opened + 1] = name end
end
local waiting = redis.call('HMGET', KEYS[3], '#bytes', '=u', '=g', '=i', '=c')
for k = 1, #waiting do waiting[k] = tonumber(waiting[k] or 0) end
local oldest = waiting[4] > 0 and oldest_open(opened) or now
local reply = {
  'SWEPT', more, waiting[1], math.floor(math.max(0, now - oldest) * 1000),
  waiting[2], waiting[3], waiting[4], waiting[5]
}
local all = redis.call('HGETALL', KEYS[3])
for k = 1, #all, 2 do
  if string.sub(all[k], 1, 1) == '#' and all[k] ~= '#bytes' then
    reply[#reply + 1] = string.sub(all[k], 2)
    reply[#reply + 1] = tonumber(all[k + 1])
  end
end
return reply

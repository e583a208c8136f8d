-- Takes labels of logged predictions, each once.
--
-- After: backlog, log_writer, waiting, closing
-- KEYS, and ARGV 1 to 15: see waiting.lua
-- ARGV: from 16 on, for each: prediction id, label (see waiting.lua), weight (f64)
-- RETURNS: {'FULL', examples and bytes in the backlog} and nothing was taken, or
--          {'LABELLED', {per label 'letter|position|delay'}}: J joined (learned from here on), W pending until the end
--          of its window, G awaits its impression, N joined and left out by the sampling, P late and joined, T late,
--          D repeated, E repeated while it awaits its impression, C another label was first, U unknown.
--          Position "entry:offset" or empty; delay in milliseconds since it was shown, or -1. For a late click it
--          counts the window before the closing.
local ids = {}
for k = OWN, #ARGV, 3 do ids[#ids + 1] = ARGV[k] end
local found = find(ids)
-- The max number of examples that these labels append.
local function to_append()
  local late, known = 0, 0
  for k, id in ipairs(ids) do
    local value = found[id]
    if value then
      known = known + 1
      local is_late = late_too and ARGV[OWN + 3 * k - 2] ~= '0' and kind_of(value) == 'c' and closed_as(value) == 'n'
      if is_late then late = late + 1 end
    end
  end
  return at_arrival and known or late
end
if #ids > room and to_append() > math.max(0, room) then
  return {'FULL', backlog, backlog_bytes}
end
local closing = {} -- id -> its label, where it is closed by this script

-- Compares a label with the first one of its prediction, and counts it.
local function compare(label, first)
  local answer = label == first and 'D' or 'C'
  count(answer == 'D' and 'duplicate' or 'conflict')
  return answer
end

local function of_impression(id, value, label, weight)
  if label_of(value) then return compare(label, label_of(value)) end
  take(id, value)
  if at_arrival then
    close(id, value, label, weight, label)
    count('joined')
    closing[id] = label
    return (label ~= '0' or is_sampled(id)) and 'J' or 'N'
  end
  found[id] = with_label(value, 'i', label, weight)
  put_back(id, found[id])
  return 'W'
end

local function of_closed(id, value, label, weight)
  local first, rest = closed_as(value)
  if first == 'l' then -- the same answer again: a click that was not learned is not reported as a duplicate
    count('duplicate')
    return label == '0' and 'D' or 'T'
  end
  if first ~= 'n' then return compare(label, first) end
  if label == '0' then return compare(label, '0') end
  take(id, value)
  count('late')
  if late_too and #rest > 0 then
    close(id, value, label, weight, label)
    count('late_joined')
    closing[id] = label
    return 'P'
  end
  found[id] = STAGE_OF.c.l .. string.sub(value, 2, REVISION - 1)
  put_back(id, found[id])
  return 'T'
end

-- A label never shortens how long its prediction waits to be shown: where that is due later, it counts from later.
local function of_unshown(id, value, label, weight)
  local from = math.floor(math.max(now, since(value) + wait_of.u - wait_of.g))
  take(id, value)
  local labelled = with_label(value, 'g', label, weight)
  found[id] = string.sub(labelled, 1, 1) .. struct.pack('<I4', from) .. string.sub(labelled, REVISION)
  put(id, found[id])
  return 'G'
end

local function answer_to(id, label, weight)
  local value = found[id]
  if not value then return 'U' end -- the caller counts it once no other model has it either
  if closing[id] then return compare(label, closing[id]) end
  local kind = kind_of(value)
  if kind == 'i' then return of_impression(id, value, label, weight) end
  if kind == 'c' then return of_closed(id, value, label, weight) end
  if kind == 'g' then return compare(label, label_of(value)) == 'D' and 'E' or 'C' end
  return of_unshown(id, value, label, weight)
end

-- When the prediction of a label was shown; approximately, if it was closed without a click; nil if it is not pending.
local function shown_at(value, label)
  local kind = value and kind_of(value)
  if kind == 'i' then return since(value) end
  if kind == 'c' and label ~= '0' and closed_as(value) == 'n' then return since(value) - wait_of.i end
end

local letters, delays = {}, {}
for k = OWN, #ARGV, 3 do
  local id = ARGV[k]
  local shown = shown_at(found[id], ARGV[k + 1])
  delays[#delays + 1] = shown and math.floor(math.max(0, now - shown) * 1000) or '-1'
  letters[#letters + 1] = answer_to(id, ARGV[k + 1], ARGV[k + 2])
end
finish()
local answers = {}
for k, id in ipairs(ids) do
  local position = position_of(id)
  if not closing[id] and found[id] and kind_of(found[id]) == 'c' then
    local label, rest = closed_as(found[id])
    position = label ~= 'n' and label ~= 'l' and rest
  end
  answers[k] = letters[k] .. '|' .. (position or '') .. '|' .. delays[k]
end
return {'LABELLED', answers}

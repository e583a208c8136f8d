-- Takes labels of logged predictions, each once.
--
-- After: log_writer, waiting
-- ARGV: from 14 on, for each: prediction id, label ('0' or '1'), weight (f64)
-- RETURNS: {'FULL', backlog} and nothing was taken, or
--          {'LABELLED', {per label 'letter|position|delay'}}: J joined (learned from here on), W waits for the end of
--          its window, G waits for its impression, N joined and left out by the sampling, P late and joined, T late,
--          D repeated, C another label was first, U unknown. Position "entry:offset" or empty; delay in
--          milliseconds since it was shown, or -1.
local asked = (#ARGV - OWN + 1) / 3
if at_arrival and room < asked then
  return {'FULL', integer(most_backlog - room)}
end
local ids = {}
for k = OWN, #ARGV, 3 do ids[#ids + 1] = ARGV[k] end
local found = find(ids, 'icgu')

-- Whether this label says the same as what is known; counts it.
local function compare(label, first)
  local answer = label == first and 'D' or 'C'
  count(answer == 'D' and 'duplicate' or 'conflict')
  return answer
end

local function of_impression(id, one, label, weight)
  local bucket, value = one[1], one[2]
  if state_of(value) ~= '-' then return compare(label, state_of(value)) end
  take(bucket, id, value)
  if at_arrival then
    close(id, value, label, weight, label)
    count('joined')
    found[id] = {'closing', label}
    return (label == '1' or is_sampled(id)) and 'J' or 'N'
  end
  found[id] = {bucket, with_label(value, label, weight)}
  put(bucket, id, found[id][2])
  return 'W'
end

local function of_closed(id, one, label, weight)
  local bucket, value = one[1], one[2]
  local first = string.sub(value, 1, 1)
  if first == 'l' then first = '1' end
  if first ~= 'n' then return compare(label, first) end
  if label == '0' then return compare(label, '0') end
  take(bucket, id, value)
  count('late')
  if late_too and room > 0 and #value > BODY then
    close(id, string.sub(value, 2), label, weight, label)
    count('late_joined')
    found[id] = {'closing', label}
    return 'P'
  end
  found[id] = {bucket, 'l'}
  put(bucket, id, 'l')
  return 'T'
end

local function of_unshown(id, one, label, weight)
  local value = with_label(one[2], label, weight)
  take(one[1], id, one[2])
  found[id] = {bucket_of('g'), value}
  put(found[id][1], id, value)
  return 'G'
end

local function answer_to(id, label, weight)
  local one = found[id]
  if not one then
    count('unknown')
    return 'U'
  end
  local kind = string.sub(one[1], 1, 1)
  if one[1] == 'closing' then return compare(label, one[2]) end
  if kind == 'i' then return of_impression(id, one, label, weight) end
  if kind == 'c' then return of_closed(id, one, label, weight) end
  if kind == 'g' then return compare(label, state_of(one[2])) end
  return of_unshown(id, one, label, weight)
end

local letters, delays = {}, {}
for k = OWN, #ARGV, 3 do
  local id = ARGV[k]
  local one = found[id]
  local shown = one and string.sub(one[1], 1, 1) == 'i' and shown_at(one[2])
  delays[#delays + 1] = shown and integer(math.max(0, now - shown) * 1000) or '-1'
  letters[#letters + 1] = answer_to(id, ARGV[k + 1], ARGV[k + 2])
end
finish()
local answers = {}
for k, id in ipairs(ids) do
  local position = closing[id] and string.sub(closing[id][2], 2)
  if not position and found[id] and string.sub(found[id][1], 1, 1) == 'c' and found[id][1] ~= 'closing' then
    position = string.match(found[id][2], '^[01](.*)$')
  end
  answers[k] = letters[k] .. '|' .. (position or '') .. '|' .. delays[k]
end
return {'LABELLED', answers}

-- Says of logged predictions that they were shown: their windows begin.
--
-- After: log_writer, waiting
-- ARGV: 14.. prediction ids
-- RETURNS: {'SHOWN', per id a letter: S shown, A already shown, U unknown}
local ids = {}
for k = OWN, #ARGV do ids[#ids + 1] = ARGV[k] end
local found = find(ids, 'ugic')
local bucket = bucket_of('i')

local answers = {}
for _, id in ipairs(ids) do
  local one = found[id]
  local kind = one and string.sub(one[1], 1, 1)
  local answer = 'A'
  if not one then
    answer = 'U'
    count('unknown')
  elseif kind == 'u' or kind == 'g' then
    answer = 'S'
    count('shown')
    take(one[1], id, one[2])
    local value = shown_now(one[2])
    if kind == 'g' and at_arrival and room > 0 then
      local label, bare, weight = state_of(value), without_label(value)
      close(id, bare, label, weight, label)
      count('joined')
    else
      put(bucket, id, value)
    end
    found[id] = {bucket, value}
  end
  answers[#answers + 1] = answer
end
finish()
return {'SHOWN', table.concat(answers)}

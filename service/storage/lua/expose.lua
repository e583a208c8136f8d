-- Exposes logged predictions: they were shown, and their windows begin.
--
-- After: backlog, log_writer, waiting, closing
-- KEYS, and ARGV 1 to 15: see waiting.lua
-- ARGV: 16.. prediction ids
-- RETURNS: {'SHOWN', per id a letter: S shown, A already shown, U unknown}
local ids = {}
for k = OWN, #ARGV do ids[#ids + 1] = ARGV[k] end
local found = find(ids)

local answers = {}
for _, id in ipairs(ids) do
  local value = found[id]
  local kind = value and kind_of(value)
  local answer = 'A'
  if not value then
    answer = 'U' -- the caller counts it once no other model has it either
  elseif kind == 'u' or kind == 'g' then
    answer = 'S'
    count('shown')
    take(id, value)
    local label = label_of(value)
    local former = value
    value = shown_now(value)
    if label and at_arrival and room > 0 then
      local bare, weight = without_label(value)
      close(id, bare, label, weight, label)
      count('joined')
    else
      if kind == 'u' then put_after(former, id, value) else put(id, value) end
    end
    found[id] = value
  end
  answers[#answers + 1] = answer
end
finish()
return {'SHOWN', table.concat(answers)}

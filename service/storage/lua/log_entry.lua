-- Part of the scripts that read the log: the number of the first example of an entry with these fields, how many there
-- are, and their records as one string; nil if it is no entry of this service. See log_writer.lua. Up to format 2 there
-- was a field e for each example, and no c.
local function examples_of(fields)
  local number = fields[1] == 'n' and tonumber(fields[2])
  if not number then return nil end
  local count, records = nil, {}
  for k = 3, #fields, 2 do
    if fields[k] == 'c' then count = tonumber(fields[k + 1]) end
    if fields[k] == 'e' then records[#records + 1] = fields[k + 1] end
  end
  return number, count or #records, table.concat(records)
end

-- Part of the scripts that append to the log: writes entries with dense numbers.
--
-- appended: number of examples that were ever appended; the caller stores writer.appended once it has flushed.
-- placed(key, position): called once the position "entry:offset" of an example added under a key is known.
-- writer.leading: a field and its value that the next entry has before its examples, or nil.
-- writer.entries: "entry:count" of each entry written, in order.
local function log_writer(log, appended, max_bytes, max_examples, placed)
  local writer = {appended = appended, entries = {}}
  local fields, bytes, keys = {}, 0, {}
  function writer.flush()
    local count = #fields / 2
    if count == 0 then return end
    local id
    if writer.leading then
      id = redis.call('XADD', log, '*', 'n', writer.appended, writer.leading[1], writer.leading[2], unpack(fields))
      writer.leading = nil
    else
      id = redis.call('XADD', log, '*', 'n', writer.appended, unpack(fields))
    end
    writer.entries[#writer.entries + 1] = id .. ':' .. count
    for offset, key in pairs(keys) do placed(key, id .. ':' .. offset) end
    writer.appended = writer.appended + count
    fields, bytes, keys = {}, 0, {}
  end
  function writer.add(record, key)
    if bytes + #record > max_bytes or #fields / 2 >= max_examples then writer.flush() end
    keys[#fields / 2] = key
    fields[#fields + 1] = 'e'
    fields[#fields + 1] = record
    bytes = bytes + #record
  end
  return writer
end


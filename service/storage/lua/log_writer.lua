-- Part of the scripts that append to the log: writes entries with dense numbers. After: clock
--
-- appended: number of examples that were ever appended; the caller stores writer.appended once it has flushed.
-- placed(key, position): called once the position "entry:offset" of an example added under a key is known.
-- writer.leading: a field and its value that the next entry has before its examples, or nil.
-- writer.entries: "entry:count" of each entry written, in order. writer.bytes: of the records written.
-- The id of an entry is the model's time (see clock.lua): milliseconds, then microseconds as the sequence. Where the log
-- ends later than that, it is the next one.
local function log_writer(log, appended, time, max_bytes, max_examples, placed)
  local writer = {appended = appended, entries = {}, bytes = 0}
  local fields, bytes, keys = {}, 0, {}
  local function next_id()
    local info = redis.call('XINFO', 'STREAM', log)
    for k = 1, #info, 2 do
      if info[k] == 'last-generated-id' then
        local milliseconds, sequence = string.match(info[k + 1], '(%d+)-(%d+)')
        return string.format('%s-%.0f', milliseconds, tonumber(sequence) + 1)
      end
    end
  end
  local function add_entry(...)
    local id = string.format('%.0f-%.0f', math.floor(time / 1000), time % 1000)
    time = time + 1
    local added = redis.pcall('XADD', log, id, ...)
    if type(added) ~= 'table' then return added end
    if string.find(added.err, 'equal or smaller', 1, true) then id = next_id() end
    return redis.call('XADD', log, id, ...)
  end
  function writer.flush()
    local count = #fields / 2
    if count == 0 then return end
    local id
    if writer.leading then
      id = add_entry('n', writer.appended, writer.leading[1], writer.leading[2], unpack(fields))
      writer.leading = nil
    else
      id = add_entry('n', writer.appended, unpack(fields))
    end
    writer.entries[#writer.entries + 1] = id .. ':' .. count
    for offset, key in pairs(keys) do placed(key, id .. ':' .. offset) end
    writer.appended = writer.appended + count
    writer.bytes = writer.bytes + bytes
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


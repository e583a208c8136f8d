-- Part of the scripts that append to the log: writes entries with dense numbers. After: clock
--
-- An entry has the fields n, the number of its first example; c, how many there are; perhaps s, how many values of
-- sliced features were known by then; and e, the records of the examples (model_core/examples/records.py).
-- Its id is the model's time (see clock.lua): milliseconds, then microseconds as the sequence. Where the log ends later
-- than that, it is the next one.
--
-- appended: number of examples that were ever appended; the caller stores writer.appended once all is written.
-- writer.slices: what the next entry has as s, or nil. writer.entries: "entry:count" of each entry written, in order.
-- writer.bytes: of the records written.
local function log_writer(log, appended, time)
  local writer = {appended = appended, entries = {}, bytes = 0}
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
  -- Adds an entry of so many records, at least one, which stand one after another; returns its id.
  function writer.write(count, records)
    local id
    if writer.slices then
      id = add_entry('n', writer.appended, 'c', count, 's', writer.slices, 'e', records)
      writer.slices = nil
    else
      id = add_entry('n', writer.appended, 'c', count, 'e', records)
    end
    writer.entries[#writer.entries + 1] = id .. ':' .. count
    writer.appended = writer.appended + count
    writer.bytes = writer.bytes + #records
    return id
  end
  return writer
end

-- Joins single records to entries of the writer: add(record, key), then flush(). placed(key, position) is called once
-- the position "entry:offset" of the example added under a key is known.
local function log_collector(writer, max_bytes, max_examples, placed)
  local collector = {}
  local records, bytes, keys = {}, 0, {}
  function collector.flush()
    if #records == 0 then return end
    local id = writer.write(#records, table.concat(records))
    for k, key in ipairs(keys) do placed(key, id .. ':' .. k - 1) end
    records, bytes, keys = {}, 0, {}
  end
  function collector.add(record, key)
    if bytes + #record > max_bytes or #records >= max_examples then collector.flush() end
    records[#records + 1], keys[#keys + 1] = record, key
    bytes = bytes + #record
  end
  return collector
end

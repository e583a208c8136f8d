-- Part of the scripts that append: positions in the streams that examples come from, such as offsets of Kafka.
--
-- They are fields of meta, so that a position and the examples before it are one: stored, lost and deleted together.
-- moves_of(text): of a JSON list of field, expected position ('' for none), new position, ...; nil for empty text.
local function moves_of(text)
  return text ~= '' and cjson.decode(text) or nil
end
local MOVES_A_CALL = 1000
local function are_expected(meta, moves)
  for start = 1, #moves, 3 * MOVES_A_CALL do
    local fields = {}
    for k = start, math.min(start + 3 * MOVES_A_CALL, #moves) - 1, 3 do fields[#fields + 1] = moves[k] end
    for i, position in ipairs(redis.call('HMGET', meta, unpack(fields))) do
      if (position or '') ~= moves[start + 3 * i - 2] then return false end
    end
  end
  return true
end
-- Adds the new positions to the fields and values of an HSET.
local function add_moves(values, moves)
  for k = 1, #moves, 3 do
    values[#values + 1] = moves[k]
    values[#values + 1] = moves[k + 2]
  end
end

-- Part of the scripts that remove slots, 4 bytes each, from a state.
local function drop_slots(state, slots)
  local CHUNK = 3000
  for start = 1, #slots, 4 * CHUNK do
    local fields = {}
    for place = start, math.min(start + 4 * CHUNK, #slots + 1) - 4, 4 do
      fields[#fields + 1] = string.sub(slots, place, place + 3)
    end
    redis.call('HDEL', state, unpack(fields))
  end
end

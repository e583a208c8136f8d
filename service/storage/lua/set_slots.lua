-- Part of the scripts that write slots (changed_type in records.py) into a state.
local function set_slots(state, slots)
  local CHUNK = 3000
  local function set_some(following, ...)
    redis.call('HSET', state, ...)
    return following
  end
  local position = #slots > 0 and 0 or -1
  while position >= 0 do -- a field and its value for each slot; -1 after the last
    position = set_some(cmsgpack.unpack_limit(slots, CHUNK, position))
  end
end


-- Part of the scripts that change many fields of a hash at once. They come as one argument, the strings of MessagePack
-- one after the other: for HSET name, value, name, ...; for HDEL the names. So the server makes one argument, not
-- thousands, and takes them apart in C.
local function change_fields(command, key, strings)
  local CHUNK = 3000
  local function change_some(following, ...)
    redis.call(command, key, ...)
    return following
  end
  local position = #strings > 0 and 0 or -1
  while position >= 0 do -- -1 after the last
    position = change_some(cmsgpack.unpack_limit(strings, CHUNK, position))
  end
end

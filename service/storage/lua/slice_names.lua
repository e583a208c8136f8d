-- Part of the scripts that bring values of sliced features (evaluation/slice_names.py: pack_names).
--
-- Each is noted once: a field of the hash `slices`, and for each feature how many it has, at most `most`.
local function note_slice_names(key, names, most)
  local start = 1
  while start < #names do
    local category, length = string.sub(names, start, start + 3), string.byte(names, start + 4)
    local count_of = '#' .. string.byte(names, start + 5)
    if tonumber(redis.call('HGET', key, count_of) or 0) < most
      and redis.call('HSETNX', key, category, string.sub(names, start + 5, start + 4 + length)) == 1 then
      redis.call('HINCRBY', key, count_of, 1)
    end
    start = start + 5 + length
  end
end


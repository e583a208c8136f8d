-- Notes values of sliced features, before predictions that have them are logged.
--
-- After: slice_names
-- KEYS: 1 meta, 2 slices
-- ARGV: 1 incarnation, 2 the values (evaluation/slice_names.py: pack_names), 3 max of them per feature
-- RETURNS: 1 noted, 0 there is no such incarnation
local incarnation, names, max_values = ARGV[1], ARGV[2], tonumber(ARGV[3])
if redis.call('HGET', KEYS[1], 'incarnation') ~= incarnation then
  return 0
end
note_slice_names(KEYS[2], names, max_values)
return 1

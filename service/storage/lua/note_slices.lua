-- Notes values of sliced features, before predictions that have them are kept for their labels.
--
-- After: slice_names
-- KEYS: 1 meta, 2 slices
-- ARGV: 1 incarnation, 2 the values (evaluation/slice_names.py: pack_names), 3 most of them a feature
-- RETURNS: 1 noted, 0 another incarnation or none
if redis.call('HGET', KEYS[1], 'incarnation') ~= ARGV[1] then
  return 0
end
note_slice_names(KEYS[2], ARGV[2], tonumber(ARGV[3]))
return 1

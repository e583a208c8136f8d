-- Deletes one incarnation of a model.
-- KEYS: 1 meta, 2 log, 3 commits, 4 evaluation, 5 lease, 6 slices,
--       7 index of the pending predictions, 8.. these, the history, its marks, its challengers, names of features
-- ARGV: 1 incarnation, 2 prefix of the state keys, 3 prefix of the lists that the index names,
--       4 prefix of the event buckets, 5 key that says for a while that it was deleted, and so is not lost,
--       6 for how long (s)
-- RETURNS: 1 deleted, 0 there is no such incarnation
local incarnation, state_prefix, due_prefix, events_prefix = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local deleted, remembered = ARGV[5], ARGV[6]
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'generation', 'events')
if meta[1] ~= incarnation then
  return 0
end
for _, list in ipairs(redis.call('HKEYS', KEYS[7])) do
  redis.call('UNLINK', due_prefix .. list)
end
for bucket in string.gmatch(meta[3] or '', '%d+') do
  redis.call('UNLINK', events_prefix .. bucket)
end
redis.call('UNLINK', state_prefix .. meta[2], unpack(KEYS))
redis.pcall('SET', deleted, incarnation, 'EX', remembered) -- a full server refuses it, and still deletes
return 1

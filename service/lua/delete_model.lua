-- Deletes one incarnation of a model. Its event buckets go by their own expiry.
-- KEYS: 1 meta, 2 log, 3 commits, 4 evaluation, 5 lease, 6 slices,
--       7 index of the buckets of predictions that wait
-- ARGV: 1 incarnation, 2 prefix of the state keys, 3 prefix of those buckets
-- RETURNS: 1 deleted, 0 that incarnation is not there
local incarnation, state_prefix = ARGV[1], ARGV[2]
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'generation')
if meta[1] ~= incarnation then
  return 0
end
for _, bucket in ipairs(redis.call('HKEYS', KEYS[7])) do
  redis.call('UNLINK', ARGV[3] .. bucket)
end
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], state_prefix .. meta[2])
return 1

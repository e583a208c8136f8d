-- Reads the evaluation that belongs to a commit, consistently.
-- KEYS: 1 meta, 2 evaluation, 3 slices
-- ARGV: 1 incarnation, 2 token
-- RETURNS: {evaluation as field, value, ..., slices as field, value, ...}, {} the model moved on
local incarnation, token = ARGV[1], ARGV[2]
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'token')
if meta[1] ~= incarnation or meta[2] ~= token then
  return {}
end
return {redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[3])}

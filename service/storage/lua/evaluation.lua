-- The evaluation of a model that belongs to a token, of one moment.
-- KEYS: 1 meta, 2 evaluation, 3 slices
-- ARGV: 1 incarnation, 2 token
-- RETURNS: {evaluation as field, value, ..., slices as field, value, ...}, {} the model moved on
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'token')
if meta[1] ~= ARGV[1] or meta[2] ~= ARGV[2] then
  return {}
end
return {redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[3])}

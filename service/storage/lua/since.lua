-- What came after a commit, and the evaluation that belongs to the last one, of one moment.
-- KEYS: 1 meta, 2 commits, 3 evaluation
-- ARGV: 1 incarnation, 2 id of the commit
-- RETURNS: {token, commits after it, evaluation as field, value, ...}, {} the model was deleted
if redis.call('HGET', KEYS[1], 'incarnation') ~= ARGV[1] then
  return {}
end
return {redis.call('HGET', KEYS[1], 'token'), redis.call('XRANGE', KEYS[2], '(' .. ARGV[2], '+'),
  redis.call('HGETALL', KEYS[3])}

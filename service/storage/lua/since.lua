-- Reads what came after a commit, and the evaluation that belongs to the last commit, consistently.
-- KEYS: 1 meta, 2 commits, 3 evaluation
-- ARGV: 1 incarnation, 2 id of the commit
-- RETURNS: {token, commits after it, evaluation as field, value, ...}, {} the model was deleted
local incarnation, position = ARGV[1], ARGV[2]
if redis.call('HGET', KEYS[1], 'incarnation') ~= incarnation then
  return {}
end
return {redis.call('HGET', KEYS[1], 'token'), redis.call('XRANGE', KEYS[2], '(' .. position, '+'),
  redis.call('HGETALL', KEYS[3])}

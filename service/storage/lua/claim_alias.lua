-- Claims a name for an alias, unless there is a model of that name.
-- KEYS: 1 meta of such a model, 2 claim
-- ARGV: 1 token of the caller
-- RETURNS: 1 claimed, 0 it is a model (nothing changed)
local token = ARGV[1]
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
redis.call('SET', KEYS[2], token)
return 1

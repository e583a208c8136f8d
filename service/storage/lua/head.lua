-- Reads where a reader starts: the model's meta and its last commit, consistently.
-- KEYS: 1 meta, 2 commits
-- ARGV: none
-- RETURNS: {meta as field, value, ..., id of the last commit or '0-0'}
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
return {redis.call('HGETALL', KEYS[1]), last[1] and last[1][1] or '0-0'}

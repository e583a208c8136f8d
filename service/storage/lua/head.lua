-- Where a reader starts: the model's meta and the last of its commits, of one moment.
-- KEYS: 1 meta, 2 commits
-- RETURNS: {meta as field, value, ..., id of the last commit or '0-0'}
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
return {redis.call('HGETALL', KEYS[1]), last[1] and last[1][1] or '0-0'}

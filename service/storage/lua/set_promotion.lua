-- Sets when a challenger is promoted automatically.
-- KEYS: 1 meta
-- ARGV: 1 incarnation, 2 the number of examples for which it has to stay better, or '' for never
-- RETURNS: 1 if it is set, 0 if the model is gone
if redis.call('HGET', KEYS[1], 'incarnation') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'promote_after', ARGV[2])
return 1

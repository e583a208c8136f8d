-- Adds to how often the features of a model were seen; the most seen remain. A name that is new among as many as
-- there may be takes over the number of the least seen, whose place it takes (the space-saving algorithm).
-- KEYS: 1 meta, 2 names
-- ARGV: 1 incarnation, 2 max names, 3.. number and name, of each
-- RETURNS: 1 noted, 0 there is no such incarnation
local incarnation, max_names = ARGV[1], tonumber(ARGV[2])
if redis.call('HGET', KEYS[1], 'incarnation') ~= incarnation then
  return 0
end
local least = 0
if redis.call('ZCARD', KEYS[2]) >= max_names then
  least = tonumber(redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2])
end
for i = 3, #ARGV, 2 do
  local known = redis.call('ZSCORE', KEYS[2], ARGV[i + 1])
  redis.call('ZADD', KEYS[2], string.format('%.17g', tonumber(ARGV[i]) + tonumber(known or least)), ARGV[i + 1])
end
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -1 - max_names)
return 1

-- Makes an alias mean a model, and remembers which one it meant before while that one's predictions may wait.
-- KEYS: 1 aliases (hash: alias -> model; 'alias/model' -> until when it is remembered, in Unix seconds;
--       '/changes' -> number of the last change; '/since/alias' -> when it came to mean its model: both in
--       microseconds, so that they are no time that has passed)
-- ARGV: 1 alias, 2 model or empty to delete the alias, 3 number of the last change so far or empty,
--       4 how long predictions of the model that it means so far may wait (s), or 0
-- RETURNS: 1 done, 0 there was another change by now
local alias, model, changes, wait = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
if (redis.call('HGET', KEYS[1], '/changes') or '') ~= changes then
  return 0
end
local time = redis.call('TIME')
local now = tonumber(time[1])
local all = redis.call('HGETALL', KEYS[1])
for k = 1, #all, 2 do
  if string.find(all[k], '/', 1, true) and tonumber(all[k + 1]) <= now then redis.call('HDEL', KEYS[1], all[k]) end
end
local so_far = redis.call('HGET', KEYS[1], alias)
redis.call('HDEL', KEYS[1], alias, alias .. '/' .. model)
if model ~= '' then redis.call('HSET', KEYS[1], alias, model) end
if so_far and so_far ~= model and wait > 0 then
  redis.call('HSET', KEYS[1], alias .. '/' .. so_far, math.ceil(now + wait))
end
local number = string.format('%.0f', math.max(now * 1000000 + tonumber(time[2]), (tonumber(changes) or 0) + 1))
if model == '' then
  redis.call('HDEL', KEYS[1], '/since/' .. alias)
elseif so_far ~= model then
  redis.call('HSET', KEYS[1], '/since/' .. alias, number)
end
redis.call('HSET', KEYS[1], '/changes', number)
return 1

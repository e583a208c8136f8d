-- Makes an alias mean a model, and remembers which one it meant before while that one's predictions may wait.
-- KEYS: 1 aliases (hash: alias -> model; 'alias/model' -> until when it is remembered, in Unix seconds)
-- ARGV: 1 alias, 2 model or empty to delete the alias, 3 what it means so far or empty,
--       4 how long that one's predictions may wait (s), or 0
-- RETURNS: 1 done, 0 it means another one by now
local alias, model, so_far, wait = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
if (redis.call('HGET', KEYS[1], alias) or '') ~= so_far then
  return 0
end
local now = tonumber(redis.call('TIME')[1])
local all = redis.call('HGETALL', KEYS[1])
for k = 1, #all, 2 do
  if string.find(all[k], '/', 1, true) and tonumber(all[k + 1]) <= now then redis.call('HDEL', KEYS[1], all[k]) end
end
redis.call('HDEL', KEYS[1], alias, alias .. '/' .. model)
if model ~= '' then redis.call('HSET', KEYS[1], alias, model) end
if so_far ~= model and wait > 0 then
  redis.call('HSET', KEYS[1], alias .. '/' .. so_far, math.ceil(now + wait))
end
return 1

-- Extends how long aliases remember a model that they meant before, after its windows have become longer.
-- KEYS: 1 aliases (see set_alias.lua)
-- ARGV: 1 model, 2 max time that its predictions may be pending (s)
-- RETURNS: 1
-- It counts as a change of the aliases, so that a process that is switching one reads again how long to remember it;
-- but no alias has come to mean another model.
local model, wait = ARGV[1], tonumber(ARGV[2])
local now = tonumber(redis.call('TIME')[1])
local all = redis.call('HGETALL', KEYS[1])
redis.call('HDEL', KEYS[1], '/changes') -- on a full server only a script that has written is given memory
local changes = 0
for k = 1, #all, 2 do
  local former = string.match(all[k], '/(.*)')
  if all[k] == '/changes' then
    changes = tonumber(all[k + 1])
  elseif former == model and tonumber(all[k + 1]) > now then
    redis.call('HSET', KEYS[1], all[k], math.max(math.ceil(now + wait), tonumber(all[k + 1])))
  end
end
redis.call('HSET', KEYS[1], '/changes', string.format('%.0f', changes + 1))
return 1

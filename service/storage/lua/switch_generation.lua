-- Makes a filled state key the model's state, if the model is still what the filling started from.
-- KEYS: 1 meta, 2 state so far, 3 filled state, 4 commits, 5 evaluation
-- ARGV: 1 incarnation, 2 generation so far, 3 previous token, 4 new token, 5 new generation, 6 t,
--       7 how many slots were filled, 8 '1' if the evaluation goes with the state so far,
--       9 discount of the filled state, or ''
-- RETURNS: {'SWITCHED'} now, or by an earlier attempt, {'MOVED'} the model moved on (nothing changed),
--          {'INCOMPLETE', slots} the filled state does not hold all of them any more (nothing changed)
local incarnation, generation, previous, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local new_generation, t, slots = ARGV[5], ARGV[6], tonumber(ARGV[7])
local forget_evaluation, discount = ARGV[8] == '1', ARGV[9]
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'generation', 'token',
  'applied', 'applied_number', 'commit', 'skipped')
if meta[1] == incarnation and meta[2] == new_generation then
  return {'SWITCHED'}
end
if meta[1] ~= incarnation or meta[2] ~= generation or meta[3] ~= previous then
  return {'MOVED'}
end
local held = redis.call('HLEN', KEYS[3])
if held ~= slots then
  return {'INCOMPLETE', held}
end
local number = string.format('%.0f', meta[6] + 1)
redis.call('PERSIST', KEYS[3])
redis.call('HSET', KEYS[1], 'generation', new_generation, 'token', token, 'commit', number, 't', t, 'base', '',
  'discount', discount, 'checkpoint', '') -- the filled state is complete; one command for all, as in restore.lua
redis.call('XADD', KEYS[4], '*', 'previous', previous, 'token', token, 'commit', number, 't', t,
  'applied', meta[4], 'applied_number', meta[5], 'skipped_total', meta[7],
  'changed', '', 'entries', '', 'margins', '', 'skipped', '', 'reset', new_generation)
redis.call('UNLINK', KEYS[2])
-- A state made elsewhere begins its own history: figures that mixed its predictions with those of the one
-- before would describe neither. A restore goes on with the same stream of examples and keeps them.
if forget_evaluation then redis.call('UNLINK', KEYS[5]) end
return {'SWITCHED'}

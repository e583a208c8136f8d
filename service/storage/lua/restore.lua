-- Makes a filled state key the model's state, whatever the model has learned meanwhile.
--
-- After: log_ids
-- KEYS: 1 meta, 2 state so far, 3 filled state, 4 commits, 5 log, 6 promotions
-- ARGV: 1 incarnation, 2 generation so far, 3 new token, 4 new generation, 5 t, 6 how many slots were filled,
--       7 configuration, 8 snapshot that it began with, 9 log id and 10 number of examples after which the log
--       is to be learned on top of that snapshot; or both empty: after what is learned now,
--       11 log id and 12 number of examples through which that was done already; or both empty,
--       13 '1' where the model goes back to that snapshot by itself, which is noted,
--       14 discount of the filled state, or '',
--       15 of a model that follows another one, whose log may be elsewhere: digest of the entry ARGV[11], or '',
--       16 fingerprint of the configuration's hash contract, 17 note of a promotion, or ''
-- RETURNS: {'SWITCHED'} now, or by an earlier attempt, {'MOVED'} another state was switched to (nothing changed),
--          {'INCOMPLETE', slots} the filled state does not hold all of them any more (nothing changed),
--          {'TRIMMED', id} the log does not go on after what was done already, but with this entry (nothing
--          changed)
-- What the log holds after ARGV[11] is learned again, so that nothing is lost or learned twice.
local incarnation, generation, token, new_generation = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local t, slots, config, base = ARGV[5], tonumber(ARGV[6]), ARGV[7], ARGV[8]
local base_applied, base_number, applied, applied_number = ARGV[9], ARGV[10], ARGV[11], ARGV[12]
local by_itself, discount, learned_digest = ARGV[13] == '1', ARGV[14], ARGV[15]
local fingerprint, promotion = ARGV[16], ARGV[17]
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'generation', 'token', 'applied', 'applied_number',
  'commit', 'skipped', 'appended', 'evaluated', 'follows')
if meta[1] == incarnation and meta[2] == new_generation then
  return {'SWITCHED'}
end
if meta[1] ~= incarnation or meta[2] ~= generation then
  return {'MOVED'}
end
local held = redis.call('HLEN', KEYS[3])
if held ~= slots then
  return {'INCOMPLETE', held}
end
if applied == '' then
  applied, applied_number = meta[4], meta[5]
elseif not meta[10] then
  local next_entry = redis.call('XRANGE', KEYS[5], '(' .. applied, '+', 'COUNT', 1)[1]
  local follows = meta[8]
  if next_entry then follows = next_entry[2][2] end
  if follows ~= applied_number then
    return {'TRIMMED', next_entry and next_entry[1] or ''}
  end
end
if base_applied == '' then
  base_applied, base_number = applied, applied_number
end
-- What is learned again has been evaluated: through here it does not count once more.
local evaluated = meta[4]
if meta[9] and before(evaluated, meta[9]) then evaluated = meta[9] end
local number = string.format('%.0f', meta[6] + 1)
redis.call('PERSIST', KEYS[3])
-- The filled state is complete, so that there is no checkpoint. One command for all, since a server may run half of
-- this at a restart (torn_tail.py), and no commits lead from a checkpoint to the new token.
local fields = {'generation', new_generation, 'token', token, 'commit', number, 't', t, 'discount', discount,
  'checkpoint', '', 'config', config, 'fingerprint', fingerprint, 'applied', applied,
  'applied_number', applied_number, 'base', base, 'base_applied', base_applied, 'base_number', base_number,
  'evaluated', evaluated}
if promotion ~= '' then
  fields[#fields + 1], fields[#fields + 2] = 'promoted', promotion
end
redis.call('HSET', KEYS[1], unpack(fields))
if promotion ~= '' then redis.call('XADD', KEYS[6], 'MAXLEN', '~', 1000, '*', 'promotion', promotion) end
if meta[10] and ARGV[11] ~= '' then redis.call('HSET', KEYS[1], 'learned_digest', learned_digest) end
if by_itself then redis.call('HSET', KEYS[1], 'rolled_back', base) end
redis.call('XADD', KEYS[4], '*', 'previous', meta[3], 'token', token, 'commit', number, 't', t,
  'applied', applied, 'applied_number', applied_number, 'skipped_total', meta[7],
  'changed', '', 'entries', '', 'margins', '', 'skipped', '', 'reset', new_generation)
redis.call('UNLINK', KEYS[2])
return {'SWITCHED'}

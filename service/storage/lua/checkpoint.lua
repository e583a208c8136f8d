-- Writes slots into the state, behind the commits that changed them, if the model is still at the commit whose rows
-- these are. Until a checkpoint is complete the state is a mixture; readers lay the commits since the last one over it.
--
-- After: hash_fields, drop_slots
-- KEYS: 1 meta, 2 state
-- ARGV: 1 incarnation, 2 generation, 3 token, 4 slots (changed_type in records.py), 5 slots that go (4 bytes each),
--       6 id of the commit through which the state is complete now, 7 its token; or both empty,
--       8 name of what the caller knows to be written last, or '', 9 name of this
-- RETURNS: 1; 0 the model has moved on, or what was written last is something else (nothing changed)
-- A server that loses its end may lose what was written and keep all commits, so that the token does not show it.
local incarnation, generation, token, slots, dropped, position, complete, previous, name = unpack(ARGV)
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'generation', 'token', 'written')
if meta[1] ~= incarnation or meta[2] ~= generation or meta[3] ~= token or (meta[4] or '') ~= previous then
  return 0
end
redis.call('HDEL', KEYS[1], '') -- changes nothing: a script that has written is not refused memory on a full server
change_fields('HSET', KEYS[2], slots)
drop_slots(KEYS[2], dropped)
if position == '' then
  redis.call('HSET', KEYS[1], 'written', name)
else
  redis.call('HSET', KEYS[1], 'written', name, 'checkpoint', position, 'checkpoint_token', complete)
end
return 1

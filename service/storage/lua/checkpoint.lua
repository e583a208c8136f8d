-- Writes slots into the state, behind the commits that changed them, if the model is still at the commit whose rows
-- these are. Until a checkpoint is complete the state is a mixture; readers lay the commits since the last one over it.
--
-- After: set_slots, drop_slots
-- KEYS: 1 meta, 2 state
-- ARGV: 1 incarnation, 2 generation, 3 token, 4 slots (changed_type in records.py), 5 slots that go (4 bytes each),
--       6 id of the commit through which the state is complete now, 7 its token; or both empty
-- RETURNS: 1; 0 the model has moved on (nothing changed)
local incarnation, generation, token, slots, dropped, position, complete = unpack(ARGV)
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'generation', 'token')
if meta[1] ~= incarnation or meta[2] ~= generation or meta[3] ~= token then
  return 0
end
redis.call('HDEL', KEYS[1], '') -- changes nothing: a script that has written is not refused memory on a full server
set_slots(KEYS[2], slots)
drop_slots(KEYS[2], dropped)
if position ~= '' then
  redis.call('HSET', KEYS[1], 'checkpoint', position, 'checkpoint_token', complete)
end
return 1

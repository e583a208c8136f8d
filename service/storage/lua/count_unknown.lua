-- Counts labels and impressions of unknown predictions.
-- KEYS: 1 meta, 2 index of the pending predictions, which has the counts
-- ARGV: 1 incarnation, 2 how many
-- RETURNS: 1 counted, 0 there is no such incarnation
local incarnation, number = ARGV[1], ARGV[2]
if redis.call('HGET', KEYS[1], 'incarnation') ~= incarnation then
  return 0
end
redis.call('HINCRBY', KEYS[2], '#unknown', number)
return 1

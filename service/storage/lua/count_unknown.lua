-- Counts labels and impressions of predictions that nobody knew.
-- KEYS: 1 meta, 2 index of the predictions that wait, which has the counts
-- ARGV: 1 incarnation, 2 how many
-- RETURNS: 1 counted, 0 that incarnation is not there
if redis.call('HGET', KEYS[1], 'incarnation') ~= ARGV[1] then
  return 0
end
redis.call('HINCRBY', KEYS[2], '#unknown', ARGV[2])
return 1

-- Part of the scripts that need the time: one of the model's own, which never goes back, whatever clocks are set to.
--
-- ARGV: the last one, which is taken off here: the caller's clock in ms (SteadyClock in channel.py), which does not jump
-- Meta: clock, the time as it was stored last, clock_seen, what the server's clock said then; both in microseconds
-- It is the earlier of the two clocks, so that no single one that is set ahead moves it. Where both are behind what is
-- stored, it goes on at half the pace until they have caught up, for five seconds at most between two scripts.
local MAX_PASSED, STORED_EVERY = 10000000, 1000000
local caller_clock = tonumber(table.remove(ARGV)) * 1000
local server_time = redis.call('TIME')
local server_clock = tonumber(server_time[1]) * 1000000 + tonumber(server_time[2])

-- stored, seen: the fields of meta, or false. old: whether it should be stored. fields(): to store it, for HSET.
local function clock_of(stored, seen)
  local time = math.min(server_clock, caller_clock)
  if not stored then return {time = time, old = true} end
  stored, seen = tonumber(stored), tonumber(seen)
  local passed = math.max(0, math.min(server_clock - seen, MAX_PASSED))
  time = math.max(time, stored + math.floor(passed / 2))
  return {time = time, old = time - stored >= STORED_EVERY or math.abs(server_clock - seen) >= STORED_EVERY}
end
local function clock_fields(clock)
  return 'clock', string.format('%.0f', clock.time), 'clock_seen', string.format('%.0f', server_clock)
end


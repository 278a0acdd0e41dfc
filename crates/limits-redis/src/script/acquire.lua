-- Decides on one call of a worker.
--
-- KEYS[1]  the worker's leases: ids, scored with when they run out in milliseconds of Redis's clock
-- ARGV[1]  the id of the new lease
-- ARGV[2]  how long it holds, in milliseconds
-- ARGV[3]  most calls at once
--
-- Answers {1, 0} when granted, else {0, milliseconds until the first lease runs out}.
-- Asking again with an id that has a lease extends it and is granted.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local runs_out = now + ARGV[2]

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local in_flight = redis.call('ZCARD', KEYS[1])
if in_flight >= tonumber(ARGV[3]) and not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  return {0, first[2] and first[2] - now or 0}
end

redis.call('ZADD', KEYS[1], runs_out, ARGV[1])
-- The key goes with its last lease, so that a worker that is gone leaves nothing.
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
redis.call('PEXPIREAT', KEYS[1], last[2])
return {1, 0}

-- Registers a process that shares the limits, and counts the registered processes.
--
-- KEYS[1]  the processes: ids with their expiry times as scores, in milliseconds of Redis's clock
-- ARGV[1]  the lifetime of this registration, in milliseconds
-- ARGV[2]  its id
--
-- Returns the number of processes, times 65536, plus the number of those with a smaller id.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
local all, smaller = redis.call('ZRANGE', KEYS[1], 0, -1), 0
for i = 1, #all do
  if all[i] < ARGV[2] then smaller = smaller + 1 end
end
return #all * 65536 + smaller

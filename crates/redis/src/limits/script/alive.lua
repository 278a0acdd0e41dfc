-- Writes down that a process is alive. Its leases do not run out as long as it is.
--
-- KEYS[1]  the processes that are alive: ids, scored with when they no longer count as such in milliseconds of Redis's clock
-- ARGV[1]  for how long this one counts as alive, in milliseconds
-- ARGV[2]  its id
--
-- Answers 1 if it counted as alive until now, otherwise 0: then Redis may know its leases no longer.
local known = redis.call('ZSCORE', KEYS[1], ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
if known and tonumber(known) > now then return 1 end
return 0

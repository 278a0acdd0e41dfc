-- Records that a process is alive. Its leases do not expire meanwhile.
--
-- KEYS[1]  the live processes: ids with their expiry times as scores, in milliseconds of Redis's clock
-- ARGV[1]  how long this process counts as alive, in milliseconds
-- ARGV[2]  its id
--
-- Returns 1 if the process counted as alive before; otherwise 0, and Redis may have lost its leases.
local known = redis.call('ZSCORE', KEYS[1], ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
if known and tonumber(known) > now then return 1 end
return 0

-- Extends leases of a worker that are held, putting back those that are gone, and removes those that were given back.
--
-- KEYS[1]  the worker's leases: ids, scored with when they run out in milliseconds of Redis's clock
-- ARGV[1]  how long an extended lease holds from now, in milliseconds
-- ARGV[2]  how many of the ids that follow are held
-- ARGV[3]… the ids that are held, then those that were given back
--
-- Answers how many leases there are now. What is held is never refused: the calls are under way, whatever the bound.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local runs_out = now + ARGV[1]
local last_held = 2 + ARGV[2]

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
for i = 3, #ARGV do
  if i <= last_held then
    redis.call('ZADD', KEYS[1], runs_out, ARGV[i])
  else
    redis.call('ZREM', KEYS[1], ARGV[i])
  end
end

local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
if last[2] then
  redis.call('PEXPIREAT', KEYS[1], last[2])
end
return redis.call('ZCARD', KEYS[1])

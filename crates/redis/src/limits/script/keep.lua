-- Extends leases of a scope that are held, putting back those that are gone.
--
-- KEYS[1]  the scope's leases: ids, scored with when they run out in milliseconds of Redis's clock
-- ARGV[1]  how long an extended lease holds from now, in milliseconds
-- ARGV[2]… the ids
--
-- Answers how many leases there are now. What is held is never refused: the calls are under way, whatever the bound.
local runs_out = now + ARGV[1]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
for i = 2, #ARGV do
  redis.call('ZADD', KEYS[1], runs_out, ARGV[i])
end
-- An eighth longer than they must: whoever adds leases renews it only when it would be too soon.
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
if last[2] then
  redis.call('PEXPIREAT', KEYS[1], last[2] + math.ceil(ARGV[1] / 8))
end
return redis.call('ZCARD', KEYS[1])

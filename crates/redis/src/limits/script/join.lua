-- Writes down that a process shares the limits, and counts all that do.
--
-- KEYS[1]  the processes: ids, scored with when they are forgotten in milliseconds of Redis's clock
-- ARGV[1]  for how long this one is remembered, in milliseconds
-- ARGV[2]  its id
--
-- Answers how many there are, times 65536, plus how many have a smaller id.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
local all, smaller = redis.call('ZRANGE', KEYS[1], 0, -1), 0
for i = 1, #all do
  if all[i] < ARGV[2] then smaller = smaller + 1 end
end
return #all * 65536 + smaller

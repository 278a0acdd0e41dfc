-- Extends leases of a scope that are held, putting back those that are gone.
--
-- KEYS[1]  the scope's leases; KEYS[2] the processes that are alive: as in calls.lua
-- ARGV[1]  how long an extended lease holds from now, in milliseconds
-- ARGV[2]  how long the scope's leases are kept while nobody asks for them, in milliseconds
-- ARGV[3]… the ids
--
-- Answers how many leases there are now. What is held is never refused: the calls are under way, whatever the bound.
local runs_out = now + ARGV[1]
for i = 3, #ARGV do
  redis.call('ZADD', KEYS[1], runs_out, ARGV[i])
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return count_leases(KEYS[1], KEYS[2], ARGV[1])

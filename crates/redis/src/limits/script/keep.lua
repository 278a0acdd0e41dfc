-- Extends the given leases of a scope, and restores missing ones, even beyond the bound: their calls are in flight.
--
-- KEYS[1]  the scope's leases, as in calls.lua
-- ARGV[1]  the length of a lease, in milliseconds
-- ARGV[2]  how long unused leases of a scope are kept, in milliseconds
-- ARGV[3]… the ids
--
-- Returns the number of the given leases.
local runs_out = now + ARGV[1]
for i = 3, #ARGV do
  redis.call('ZADD', KEYS[1], runs_out, ARGV[i])
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return #ARGV - 2

-- KEYS: the lead. ARGV: who leads; for how many milliseconds from now.
local lead = redis.call('GET', KEYS[1])
if lead and string.sub(lead, 1, #ARGV[1] + 1) == ARGV[1] .. ' ' then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0

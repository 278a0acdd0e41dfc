-- KEYS: the lead. ARGV: who leads; `failed` or `stopped`; for how many milliseconds everybody calls for themselves.
if ARGV[2] == 'failed' then
    redis.call('SET', KEYS[1], 'open', 'PX', ARGV[3])
    return 0
end
local lead = redis.call('GET', KEYS[1])
if lead and string.sub(lead, 1, #ARGV[1] + 1) == ARGV[1] .. ' ' then
    redis.call('DEL', KEYS[1])
end
return 0

-- KEYS: the output, the lead. ARGV: who would lead, or nothing; for how many milliseconds.
local known = redis.call('GET', KEYS[1])
if known then
    return {1, known}
end
local lead = redis.call('GET', KEYS[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if lead and lead ~= 'open' then
    local since = tonumber(string.match(lead, ' (%d+)$')) or now
    return {2, string.format('%.0f', math.max(now - since, 0))}
end
if not lead and ARGV[1] ~= '' then
    redis.call('SET', KEYS[2], ARGV[1] .. ' ' .. string.format('%.0f', now), 'PX', ARGV[2])
end
return {0, ''}

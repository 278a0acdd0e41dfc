-- KEYS: the output, the index of all outputs. ARGV: the output, for how many milliseconds, most outputs.
-- The index holds the keys of outputs by when they run out; all keys have one hash tag, so those that it names may be removed.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[2]), KEYS[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now))
local excess = redis.call('ZCARD', KEYS[2]) - ARGV[3]
if excess > 0 then
    -- After the bound was lowered there may be many: a few at a time.
    for _, key in ipairs(redis.call('ZRANGE', KEYS[2], 0, math.min(excess, 100) - 1)) do
        redis.call('DEL', key)
        redis.call('ZREM', KEYS[2], key)
    end
end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 0

-- KEYS: the output, the index of all outputs. ARGV: the output, its lifetime in milliseconds, the most outputs.
-- The index holds the keys of outputs by their expiry times. All keys have one hash tag, so the script may remove those in the index.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[2]), KEYS[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now))
local excess = redis.call('ZCARD', KEYS[2]) - ARGV[3]
if excess > 0 then
    -- After a reduction of the bound the excess may be large, so the script removes a few at a time.
    for _, key in ipairs(redis.call('ZRANGE', KEYS[2], 0, math.min(excess, 100) - 1)) do
        redis.call('DEL', key)
        redis.call('ZREM', KEYS[2], key)
    end
end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 0

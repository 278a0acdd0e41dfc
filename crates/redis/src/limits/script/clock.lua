-- Milliseconds since 1970, by Redis's own clock: no two processes need to agree on the time.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

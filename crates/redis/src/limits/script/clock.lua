-- Milliseconds since 1970 by Redis's clock, so the processes' clocks do not matter.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

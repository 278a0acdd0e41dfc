-- Counts the leases of a scope. An expired lease counts while its process is alive, for at most four times the length of a lease;
-- otherwise it is removed. Within that time, a process lists all its leases again, so only a lease whose grant was lost on its way
-- expires. The id of a lease begins with its process, up to a colon.
--
-- `calls`  the scope's leases: ids with their expiry times as scores, in milliseconds of Redis's clock
-- `alive`  the live processes: ids with their expiry times as scores
local function count_leases(calls, alive, lease_ms)
  local over, until_ = redis.call('ZRANGEBYSCORE', calls, '-inf', now, 'WITHSCORES'), {}
  for i = 1, #over, 2 do
    local process = string.match(over[i], '^[^:]*')
    until_[process] = until_[process] or tonumber(redis.call('ZSCORE', alive, process) or 0)
    if until_[process] <= now or over[i + 1] + lease_ms * 4 <= now then redis.call('ZREM', calls, over[i]) end
  end
  return redis.call('ZCARD', calls)
end

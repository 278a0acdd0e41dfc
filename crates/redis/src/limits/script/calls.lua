-- Counts the leases of a scope. A lease that ran out still counts while its process is alive, and is removed otherwise. It counts no
-- longer than four times the time of a lease: a process names its leases sooner than that, and an answer that was lost may have left
-- one that nobody holds. The id of a lease begins with its process, up to a colon.
--
-- `calls`  the scope's leases: ids, scored with when they run out in milliseconds of Redis's clock
-- `alive`  the processes that are alive: ids, scored with when they no longer count as such
local function count_leases(calls, alive, lease_ms)
  local over, until_ = redis.call('ZRANGEBYSCORE', calls, '-inf', now, 'WITHSCORES'), {}
  for i = 1, #over, 2 do
    local process = string.match(over[i], '^[^:]*')
    until_[process] = until_[process] or tonumber(redis.call('ZSCORE', alive, process) or 0)
    if until_[process] <= now or over[i + 1] + lease_ms * 4 <= now then redis.call('ZREM', calls, over[i]) end
  end
  return redis.call('ZCARD', calls)
end

-- Decides on one call of a worker: it gets room in the scope of the worker and in that of the account, or in none.
--
-- KEYS[1…4]  calls, state, groups, waiting of the worker; KEYS[5…8] the same of its account, if that has limits
-- ARGV[1]    the id of the new lease
-- ARGV[2]    how long it holds, in milliseconds
-- ARGV[3]    how long what is known of a scope is kept, in milliseconds
-- ARGV[4]    longest time after which to ask again, in milliseconds
-- ARGV[5…7]  who asks, for which tier (1 mini, 2 ultra), for which tenant
-- ARGV[8, 9] tokens of the prompt and most tokens of the completion, as estimated
-- ARGV[10…]  the worker's limits, then the account's
--
-- Answers {1, tokens reserved of the prompt, of the completion, whether it is a probe}, or
-- {0, why (1 busy, 2 rate, 3 blocked, 4 broken), microseconds until it may ask again, up to so many more}.
-- Asking again with an id that has a lease extends it and is granted.
local WHY = { busy = 1, rate = 2, blocked = 3, broken = 4 }
local lease, runs_out, kept_ms = ARGV[1], now + ARGV[2], tonumber(ARGV[3])
local caller = { who = ARGV[5], tier = tonumber(ARGV[6]), tenant = ARGV[7], ask_again_max = tonumber(ARGV[4]) }
local input, output = tonumber(ARGV[8]), tonumber(ARGV[9])

local scopes = { open_scope(1, 10) }
if KEYS[5] then scopes[2] = open_scope(5, 15) end

local worker = scopes[1]
if worker.input_ratio > 0 then input = math.ceil(input * worker.input_ratio) end
if worker.output_mean > 0 then
  output = math.min(math.ceil(worker.output_mean + worker.output_deviation * C.deviations), output)
end
caller.takes = { 1, input + output, input, output }

if redis.call('ZSCORE', worker.calls, lease) then
  for i = 1, #scopes do
    redis.call('ZADD', scopes[i].calls, runs_out, lease)
    keep_calls(scopes[i])
  end
  return { 1, input, output, 0 }
end

for i = 1, #scopes do
  begin(scopes[i])
  local why, wait = look(scopes[i], caller)
  if why then
    local after, spread = refuse(scopes[i], caller, why, wait)
    for j = 1, i do close_scope(scopes[j], kept_ms) end
    return { 0, WHY[why], math.ceil(after * 1000), math.floor(spread * 1000) }
  end
end

local probes = 0
for i = 1, #scopes do
  if grant(scopes[i], caller, lease, runs_out, kept_ms) then probes = 1 end
  close_scope(scopes[i], kept_ms)
  keep_calls(scopes[i])
end
return { 1, input, output, probes }

-- Settles calls of one worker that have ended, each once: what has no lease was settled before, or ran out.
--
-- KEYS[1…4]  calls, state, groups, waiting of the worker; KEYS[5…8] the same of its account, if that has limits
-- ARGV[1]    how long what is known of a scope is kept, in milliseconds
-- ARGV[2…6]  the worker's limits; ARGV[7…11] the account's, zeros if it has none
-- ARGV[12…]  for each call 21 numbers, those that are not known -1: the id of its lease; its outcome; whether it was a probe;
--            how long the vendor wants to be left alone, in milliseconds; milliseconds to the first token; what to add of
--            requests, tokens, input tokens and output tokens; tokens of prompt and completion, as estimated and as used;
--            then what the vendor says is allowed and left of each kind
--
-- Answers how many were settled.
local kept_ms = tonumber(ARGV[1])
local worker = open_scope(1, 2)
local account = KEYS[5] and open_scope(5, 7)

local function limited(asked)
  if asked < 0 then
    worker.pause = math.min(math.max(worker.pause * 2, C.pause_ms), C.pause_ms_max)
    asked = worker.pause
  end
  worker.block_until = math.max(worker.block_until, now + asked)
end

local function is_there(probes)
  if worker.open_until <= 0 then
    worker.failures = 0
  elseif probes then
    worker.failures, worker.open_until, worker.open, worker.probe_until = 0, 0, 0, 0
  end
end

local function failed(probes)
  if worker.open_until <= 0 then
    worker.failures = worker.failures + 1
    if worker.failures >= C.failures_max then
      worker.open = C.open_ms
      worker.open_until = now + worker.open
    end
  elseif probes then
    worker.open = math.min(worker.open * 2, C.open_ms_max)
    worker.open_until = now + worker.open
    worker.probe_until = 0
  end
end

local function is_slow() return worker.of_late > worker.usual * C.slow_times + C.slow_more_ms end

local function reduce(in_flight, factor, floor)
  if now - worker.reduced_at < C.reduce_every_ms then return end
  local bears = math.max(math.min(most_calls(worker), in_flight) * factor, floor)
  if bears < most_calls(worker) then
    worker.bears = bears
    worker.reduced_at = now
  end
end

local function grow(in_flight)
  if worker.bears > 0 and in_flight >= worker.bears / 2 and not is_slow() then
    worker.bears = worker.bears + 1 / worker.bears
    if worker.bears >= worker.calls_max then worker.bears = 0 end
  end
end

local function fared(call, in_flight)
  local outcome = call.outcome
  if outcome == 'unknown' or outcome == 'not_sent' then
    if call.probes then worker.probe_until = 0 end
    return
  end
  if outcome == 'failed' or outcome == 'overloaded' then failed(call.probes) else is_there(call.probes) end
  if outcome == 'answered' then
    worker.pause = 0
    grow(in_flight)
  elseif outcome == 'overloaded' then
    reduce(in_flight, C.after_overload, 1)
  elseif outcome == 'limited' then
    limited(call.retry_after)
  end
end

local function learn(call)
  if call.estimated > 0 and call.input > 0 then
    local ratio = math.min(math.max(call.input / call.estimated, C.ratio_min), C.ratio_max)
    local known = worker.input_ratio > 0 and worker.input_ratio or ratio
    worker.input_ratio = known + (ratio - known) * C.mean_gain
  end
  if call.output <= 0 then return end
  if worker.output_mean <= 0 then
    worker.output_mean, worker.output_deviation = call.output, call.output / 2
    return
  end
  local error = call.output - worker.output_mean
  worker.output_deviation = worker.output_deviation + (math.abs(error) - worker.output_deviation) * C.deviation_gain
  worker.output_mean = worker.output_mean + error * C.mean_gain
end

local function first_token(ms, in_flight)
  if worker.usual <= 0 then
    worker.usual, worker.of_late = ms, ms
    return
  end
  local towards = ms > worker.usual and C.usual_up or C.usual_down
  worker.usual = worker.usual + (ms - worker.usual) * towards
  worker.of_late = worker.of_late + (ms - worker.of_late) * C.of_late_gain
  if is_slow() then
    reduce(in_flight, C.after_slowness, math.max(worker.calls_max * C.slowness_floor, 1))
  end
end

local function hear(call)
  for which = 1, 4 do
    local limit, remaining = call.said[which], call.left[which]
    if limit > 0 then worker['said' .. which] = limit end
    local unit, burst = pace(worker, which)
    if remaining >= 0 and unit then
      local name = 'empty' .. which
      worker[name] = math.max(worker[name], now + burst - remaining * unit)
    end
  end
end

local settled = 0
for at = 12, #ARGV, 21 do
  local function number(place) return tonumber(ARGV[at + place]) end
  if redis.call('ZREM', worker.calls, ARGV[at]) == 1 then
    settled = settled + 1
    local in_flight = worker.in_flight
    local amounts = { number(5), number(6), number(7), number(8) }
    add(worker, amounts)
    worker.in_flight = worker.in_flight - 1
    if account then
      redis.call('ZREM', account.calls, ARGV[at])
      add(account, amounts)
    end
    local call = {
      outcome = ARGV[at + 1], probes = number(2) == 1, retry_after = number(3),
      estimated = number(9), input = number(11), output = number(12),
      said = { number(13), number(15), number(17), number(19) },
      left = { number(14), number(16), number(18), number(20) },
    }
    fared(call, in_flight)
    if call.outcome == 'answered' and call.input >= 0 then learn(call) end
    if number(4) >= 0 then first_token(number(4), in_flight) end
    hear(call)
  end
end
if settled > 0 then
  close_scope(worker, kept_ms)
  if account then close_scope(account, kept_ms) end
end
return settled

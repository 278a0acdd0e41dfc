-- Settles calls of one worker that have ended, each once: a call without a lease was settled before, or its lease expired.
--
-- KEYS[1…3]  calls, state, groups of the worker; KEYS[4…6] of its account, if that has limits; then the live processes
-- ARGV[1]    numbers: the length of a lease, the lifetime of an unused scope, in milliseconds; the worker's limits, then the
--            account's
-- ARGV[2…]   one for each call, unknown values are -1: its outcome, as numbered below; whether it was a probe; its number among the
--            calls of the worker, 0 if the meter did not grant it; the vendor's `Retry-After` in milliseconds; milliseconds to the
--            first token; the changes of requests, tokens, input tokens and output tokens; the estimated tokens of its prompt;
--            the real tokens of prompt and completion, for the estimates; reported limit and remainder of each kind; then the id
--            of its lease
-- Numbers are doubles, texts end with a zero byte.
--
-- Returns the number of settled calls.
local UNKNOWN, NOT_SENT, ANSWERED, LIMITED, OVERLOADED, FAILED_OUTCOME = 0, 1, 2, 4, 5, 6 -- 3 is refused
local CALL = '<ddd dd dddd ddd dd dd dd dd s'

local numbers = { struct.unpack('<dd d dddd d dddd', ARGV[1]) }
local kept_ms, worker = numbers[2], open_scope(1, numbers, 3)
-- Without limits per minute, settling changes only the account's leases.
local account = KEYS[5] and numbers[9] + numbers[10] + numbers[11] + numbers[12] > 0 and open_scope(4, numbers, 8)

-- Calls in flight, with the one that is being settled. Counted only when needed.
local function in_flight()
  if not worker.in_flight then worker.in_flight = count_calls(worker) + 1 end
  return worker.in_flight
end

local function is_slow() return worker[OF_LATE] > worker[USUAL] * C.slow_times + C.slow_more_ms end

local function reduce(calls, factor, floor)
  if now - worker[REDUCED_AT] < C.reduce_every_ms then return end
  local bears = max(min(most_calls(worker), calls) * factor, floor)
  if bears < most_calls(worker) then
    worker[BEARS] = bears
    worker[REDUCED_AT] = now
  end
end

local function limited(number, asked)
  local is_new = number > worker[LIMITED_LAST] or worker[LIMITED_AT] <= 0
  if is_new then
    worker[LIMITED_AT], worker[LIMITED_LAST_BEFORE] = now, worker[LIMITED_LAST]
    worker[LIMITED_LAST], worker[LIMITED_REFUSED] = worker[GRANTED], 0
  end
  if asked >= 0 then
    worker[BLOCK_UNTIL] = max(worker[BLOCK_UNTIL], now + asked)
  elseif is_new then
    worker[PAUSE] = min(max(worker[PAUSE] * 2, C.pause_ms), C.pause_ms_max)
    worker[PAUSE_UNTIL] = now + worker[PAUSE]
  end
  if number > worker[LIMITED_LAST_BEFORE] then worker[LIMITED_REFUSED] = worker[LIMITED_REFUSED] + 1 end
  local calls = worker[LIMITED_LAST] - worker[LIMITED_LAST_BEFORE]
  if worker[LIMITED_REFUSED] >= C.limited_min and worker[LIMITED_REFUSED] * 2 > calls then
    reduce(worker.calls_max, C.after_overload, 1)
  end
end

local function accepted(number)
  if number > worker[LIMITED_LAST] then
    worker[PAUSE] = 0
  elseif number > worker[LIMITED_LAST_BEFORE] then
    worker[PAUSE] = min(worker[PAUSE], C.pause_ms)
    worker[PAUSE_UNTIL] = min(worker[PAUSE_UNTIL], worker[LIMITED_AT] + C.pause_ms)
  end
end

local function is_bad()
  local failed = worker[FAILED] + worker[FAILED + 1]
  local calls = max(worker[SENT] + worker[SENT + 1], worker[ENDED] + worker[ENDED + 1])
  if failed >= C.failures_min and failed > calls * C.failed_share_max then return true end
  return worker[ROW] >= C.failures_min and worker[ROW] >= in_flight()
end

local function judge(number, probes, failed)
  if worker[OPEN_UNTIL] > 0 then
    if not probes then return end
    worker[PROBE_UNTIL] = 0
    if failed then
      worker[OPEN] = min(worker[OPEN] * 2, C.open_ms_max)
      worker[OPEN_UNTIL] = now + worker[OPEN]
    else
      worker[OPEN_UNTIL], worker[OPEN] = 0, 0
      for at = SENT, ROW do worker[at] = 0 end
      worker[SPAN_SINCE], worker[COUNTS_AFTER] = now, worker[GRANTED]
    end
    return
  end
  if number <= worker[COUNTS_AFTER] then return end
  roll(worker)
  worker[ENDED] = worker[ENDED] + 1
  if not failed then
    worker[ROW] = 0
    return
  end
  worker[FAILED], worker[ROW] = worker[FAILED] + 1, worker[ROW] + 1
  if is_bad() then
    worker[OPEN] = C.open_ms
    worker[OPEN_UNTIL] = now + worker[OPEN]
  end
end

local function grow()
  if worker[BEARS] > 0 and in_flight() >= worker[BEARS] / 2 and not is_slow() then
    local seconds = (now - worker[REDUCED_AT]) / 1e3
    worker[BEARS] = worker[BEARS] + max(seconds * seconds * C.growth, 1) / worker[BEARS]
    if worker[BEARS] >= worker.calls_max then worker[BEARS] = 0 end
  end
end

local function fared(outcome, probes, number, retry_after)
  if outcome == UNKNOWN or outcome == NOT_SENT then
    if probes then worker[PROBE_UNTIL] = 0 end
    return
  end
  if number > worker[GRANTED] then number = 0 end
  judge(number, probes, outcome == FAILED_OUTCOME or outcome == OVERLOADED)
  if outcome == ANSWERED then
    accepted(number)
    grow()
  elseif outcome == OVERLOADED then
    reduce(in_flight(), C.after_overload, 1)
  elseif outcome == LIMITED then
    limited(number, retry_after)
  end
end

local function learn(estimated, input, output)
  if estimated > 0 and input > 0 then
    local ratio = min(max(input / estimated, C.ratio_min), C.ratio_max)
    local known = worker[INPUT_RATIO] > 0 and worker[INPUT_RATIO] or ratio
    worker[INPUT_RATIO] = known + (ratio - known) * C.mean_gain
  end
  if output <= 0 then return end
  if worker[OUTPUT_MEAN] <= 0 then
    worker[OUTPUT_MEAN], worker[OUTPUT_DEVIATION] = output, output / 2
    return
  end
  local error, deviation = output - worker[OUTPUT_MEAN], worker[OUTPUT_DEVIATION]
  worker[OUTPUT_DEVIATION] = deviation + (math.abs(error) - deviation) * C.deviation_gain
  worker[OUTPUT_MEAN] = worker[OUTPUT_MEAN] + error * C.mean_gain
end

local function first_token(ms)
  if worker[USUAL] <= 0 then
    worker[USUAL], worker[OF_LATE] = ms, ms
    return
  end
  local towards = ms > worker[USUAL] and C.usual_up or C.usual_down
  worker[USUAL] = worker[USUAL] + (ms - worker[USUAL]) * towards
  worker[OF_LATE] = worker[OF_LATE] + (ms - worker[OF_LATE]) * C.of_late_gain
  if is_slow() then reduce(in_flight(), C.after_slowness, max(worker.calls_max * C.slowness_floor, 1)) end
end

local function hear(which, limit, remaining)
  if limit > 0 then
    local had_pace = worker.units[which]
    if now >= worker[SAID_UNTIL] then
      for kind = 1, 4 do worker[SAID + kind] = 0 end
    end
    worker[SAID + which], worker[SAID_UNTIL] = limit, now + C.said_kept_ms
    if not had_pace then
      if now >= worker[DEBT_UNTIL] then
        for kind = 1, 4 do worker[DEBT + kind] = 0 end
      end
      worker[DEBT + which], worker[DEBT_UNTIL] = worker[SPENT + which], now + C.minute_ms
    end
    for kind = 1, 4 do set_pace(worker, kind) end
    if not had_pace and worker.units[which] then worker[EMPTY + which] = now + worker.bursts[which] end
  end
  local unit, burst = worker.units[which], worker.bursts[which]
  if remaining >= 0 and unit then
    worker[EMPTY + which] = max(worker[EMPTY + which], now + burst - remaining * unit)
  end
end

local function settle(packed)
  local outcome, probes, number, retry_after, first, requests, tokens, input, output, estimated, used_input, used_output,
    l1, r1, l2, r2, l3, r3, l4, r4, id = struct.unpack(CALL, packed)
  if KEYS[5] then call('ZREM', KEYS[4], id) end
  if call('ZREM', KEYS[1], id) == 0 then return 0 end
  if worker.in_flight then worker.in_flight = worker.in_flight - 1 end
  local amounts = { requests, tokens, input, output }
  add(worker, amounts)
  if account then add(account, amounts) end
  fared(outcome, probes == 1, number, retry_after)
  if outcome == ANSWERED and used_input >= 0 then learn(estimated, used_input, used_output) end
  if first >= 0 then first_token(first) end
  hear(1, l1, r1)
  hear(2, l2, r2)
  hear(3, l3, r3)
  hear(4, l4, r4)
  return 1
end

local settled = 0
for i = 2, #ARGV do settled = settled + settle(ARGV[i]) end
if settled > 0 then
  close_scope(worker, kept_ms)
  if account then close_scope(account, kept_ms) end
end
return settled

-- One scope: its usage, and whether it has capacity for a call. It computes the same as `podium_domain::limits`, in the same order,
-- so both produce the same numbers. The constants come from there: `C.<name>` is replaced by a number.
--
-- A scope is a worker or an account. Its keys:
--   calls      leases of calls in flight: ids with their expiry times as scores. An expired lease counts until its capacity is
--              needed; then it is removed if its process is dead
--   state      the numbers of the meter and some names, packed in the order below; a change of the order needs a new key name
--   groups     tags by `<tier> <tenant>`; for each tier, the tag of the tenant with the latest grant is newer in the state
--   waiting:1  waiting callers of `mini`, waiting:2 those of `ultra`: ids with the ends of their waiting times as scores
-- All keys may be lost at any time.
-- The last key of each script belongs to the vendor: `alive`, the live processes with calls in flight.

-- The first group has a number for each of requests, tokens, input tokens and output tokens, the next one for each tier; the others
-- have one for the scope.
local EMPTY, SAID, SPENT, DEBT = 0, 4, 8, 12
local TIER, GROUPS_NOW, LAST_TAG, WAITING_UNTIL = 16, 18, 20, 22
local TIERS_NOW = 25
local TURN_TIER, TURN_NEED, TURN_UNTIL = 26, 27, 28
local SAID_UNTIL, SPENT_SINCE, DEBT_UNTIL = 29, 30, 31
local GRANTED, BLOCK_UNTIL, PAUSE_UNTIL, PAUSE = 32, 33, 34, 35
local LIMITED_AT, LIMITED_LAST, LIMITED_LAST_BEFORE, LIMITED_REFUSED = 36, 37, 38, 39
-- The counts SENT, ENDED and FAILED have a number for the current span and one for the previous span.
local SPAN_SINCE, SENT, ENDED, FAILED, ROW, COUNTS_AFTER = 40, 41, 43, 45, 47, 48
local OPEN_UNTIL, OPEN, PROBE_UNTIL = 49, 50, 51
local BEARS, REDUCED_AT, USUAL, OF_LATE = 52, 53, 54, 55
local OUTPUT_MEAN, OUTPUT_DEVIATION, INPUT_RATIO = 56, 57, 58
-- Expiry times of the keys.
local STATE_UNTIL, CALLS_UNTIL, GROUPS_UNTIL = 59, 60, 61
-- LAST_TENANT has a value for each tier.
local TURN_WHO, TURN_TENANT, LAST_TENANT, LENGTH = 62, 63, 63, 65
local NUMBERS = 61
local FORMAT = '<' .. string.rep('d', NUMBERS) .. 'ssss'

-- Keys live longer than needed by this part of their time, so that the expiry is not written each time.
local SLACK = 1 / 8

-- The length of a lease, which is the first number of each script.
local lease_ms = struct.unpack('<d', ARGV[1])

local call, max, min, ceil = redis.call, math.max, math.min, math.ceil

-- The pace of a limit: milliseconds for each unit, and the burst in milliseconds; false without a limit.
local function pace(scope, which)
  local limit, said = scope.per_minute[which], 0
  if now < scope[SAID_UNTIL] then said = scope[SAID + which] end
  -- A reported limit is ignored if the account's configured limit is not higher.
  local account = scope.account_per_minute[which] or 0
  if account > 0 and said >= account then said = 0 end
  if said > 0 and limit > 0 then limit = min(limit, said) else limit = max(limit, said) end
  if limit <= 0 then return false end
  if now < scope[DEBT_UNTIL] then limit = limit - min(scope[DEBT + which], limit * C.debt_max) end
  local burst = max(limit * C.burst_s / 60, 1)
  local steady = max(limit - burst, limit / 2)
  local unit = C.minute_ms / steady
  return unit, burst * unit
end

local function set_pace(scope, which) scope.units[which], scope.bursts[which] = pace(scope, which) end

-- Reads a scope. Its keys begin at `place`, its limits at `at` in `numbers`: most concurrent calls, then the limits per minute of
-- requests, tokens, input tokens and output tokens, 0 for no limit. After a worker's limits, `numbers` has those of its account.
local function open_scope(place, numbers, at)
  local packed = call('GET', KEYS[place + 1])
  if not packed then
    packed = string.rep('\0', NUMBERS * 8 + LENGTH - NUMBERS)
    -- Old tags would be higher than all new ones.
    call('DEL', KEYS[place + 2])
  end
  local per_minute = { numbers[at + 1], numbers[at + 2], numbers[at + 3], numbers[at + 4] }
  local account_per_minute = { numbers[at + 6], numbers[at + 7], numbers[at + 8], numbers[at + 9] }
  local scope = {
    account_per_minute = account_per_minute,
    calls = KEYS[place], state = KEYS[place + 1], groups = KEYS[place + 2], waiting = place + 2,
    calls_max = numbers[at], per_minute = per_minute, units = {}, bursts = {}, in_flight = false, is_counted = false,
    struct.unpack(FORMAT, packed),
  }
  for which = 1, 4 do set_pace(scope, which) end
  return scope
end

-- Writes a scope, which expires if it is not used for `kept_ms`. The expiry is written only if it would be too early.
local function close_scope(scope, kept_ms)
  local busy = max(now, scope[BLOCK_UNTIL], scope[PAUSE_UNTIL], scope[OPEN_UNTIL])
  for which = 1, 4 do busy = max(busy, scope[EMPTY + which]) end
  local kept_until = ceil(busy) + kept_ms
  local is_too_soon = scope[STATE_UNTIL] < kept_until
  if is_too_soon then scope[STATE_UNTIL] = kept_until + ceil(kept_ms * SLACK) end
  call('SET', scope.state, struct.pack(FORMAT, unpack(scope, 1, LENGTH)), 'KEEPTTL')
  if is_too_soon then call('PEXPIREAT', scope.state, scope[STATE_UNTIL]) end
end

-- Counts calls in flight, except those of dead processes.
local function count_calls(scope) return count_leases(scope.calls, KEYS[#KEYS], lease_ms) end

local function most_calls(scope)
  if scope[BEARS] > 0 then return min(math.floor(scope[BEARS]), scope.calls_max) end
  return scope.calls_max
end

local function add(scope, amounts)
  if now - scope[SPENT_SINCE] >= C.minute_ms then
    for which = 1, 4 do scope[SPENT + which] = 0 end
    scope[SPENT_SINCE] = now
  end
  for which = 1, 4 do
    local amount = amounts[which]
    scope[SPENT + which] = max(scope[SPENT + which] + amount, 0)
    if scope[DEBT + which] > 0 and amount < 0 then
      scope[DEBT + which] = max(scope[DEBT + which] + amount, 0)
      set_pace(scope, which)
    end
    local unit = scope.units[which]
    if unit then
      local empty = max(scope[EMPTY + which], now) + amount * unit
      scope[EMPTY + which] = max(min(empty, now + C.minute_ms + scope.bursts[which]), now)
    end
  end
end

-- Starts a new span of the breaker's counts if it is due.
local function roll(scope)
  local age = now - scope[SPAN_SINCE]
  if age >= C.span_ms * 2 then
    for at = SENT, FAILED + 1 do scope[at] = 0 end
    scope[SPAN_SINCE] = now
  elseif age >= C.span_ms then
    scope[SPAN_SINCE] = scope[SPAN_SINCE] + C.span_ms
    for at = SENT, FAILED, 2 do scope[at], scope[at + 1] = 0, scope[at] end
  end
end

-- One scope: what was taken of it, and whether there is room for a call. It does the sums of `podium_domain::limits`, in the
-- same order, so that both come to the same numbers. The constants come from there: `C.<name>` stands for a number.
--
-- A scope is a worker or an account. Its keys:
--   calls      leases of calls under way: ids, scored with when they run out. Those that did count until their room is needed;
--              then they are removed if their process is dead
--   state      the numbers of the meter and some names, packed in the order below: who changes it gives the key another name
--   groups     tags: `<tier> <tenant>`; that of the tenant that was granted last is newer in the state, one for each tier
--   waiting:1  of `mini`, waiting:2 of `ultra`: who was told to come back, scored with until when that counts
-- Only `calls` has to hold nothing twice; all of them may be lost at any time.
-- The last key of each script is of the vendor: `alive`, the processes with calls under way that are alive.

-- Of requests, tokens, input tokens and output tokens; of each tier; of the scope.
local EMPTY, SAID, SPENT, DEBT = 0, 4, 8, 12
local TIER, GROUPS_NOW, LAST_TAG, WAITING_UNTIL = 16, 18, 20, 22
local TIERS_NOW = 25
local TURN_TIER, TURN_NEED, TURN_UNTIL = 26, 27, 28
local SAID_UNTIL, SPENT_SINCE, DEBT_UNTIL = 29, 30, 31
local GRANTED, BLOCK_UNTIL, PAUSE_UNTIL, PAUSE = 32, 33, 34, 35
local LIMITED_AT, LIMITED_LAST, LIMITED_LAST_BEFORE, LIMITED_REFUSED = 36, 37, 38, 39
-- The three counts have one number for the current span and one for the span before it.
local SPAN_SINCE, SENT, ENDED, FAILED, ROW, COUNTS_AFTER = 40, 41, 43, 45, 47, 48
local OPEN_UNTIL, OPEN, PROBE_UNTIL = 49, 50, 51
local BEARS, REDUCED_AT, USUAL, OF_LATE = 52, 53, 54, 55
local OUTPUT_MEAN, OUTPUT_DEVIATION, INPUT_RATIO = 56, 57, 58
-- When the keys themselves run out.
local STATE_UNTIL, CALLS_UNTIL, GROUPS_UNTIL = 59, 60, 61
-- The last one is of each tier again.
local TURN_WHO, TURN_TENANT, LAST_TENANT, LENGTH = 62, 63, 63, 65
local NUMBERS = 61
local FORMAT = '<' .. string.rep('d', NUMBERS) .. 'ssss'

-- How much longer than it must a key lives, as a part of its time, so that this is not written each time.
local SLACK = 1 / 8

-- How long a lease holds: the first of the numbers of each script.
local lease_ms = struct.unpack('<d', ARGV[1])

local call, max, min, ceil = redis.call, math.max, math.min, math.ceil

-- The pace of a limit: milliseconds for each unit, and how many may be taken at once.
local function pace(scope, which)
  local limit, said = scope.per_minute[which], 0
  if now < scope[SAID_UNTIL] then said = scope[SAID + which] end
  -- What the account's configured limit keeps already is no pace of the worker.
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

-- Reads a scope. `place` is where its keys begin, `at` where in `numbers` its limits do: most calls at once, then what is allowed a
-- minute of requests, tokens, input tokens and output tokens, 0 for no limit. Those of a worker's account follow its own; nothing
-- follows those of an account.
local function open_scope(place, numbers, at)
  local packed = call('GET', KEYS[place + 1])
  if not packed then
    packed = string.rep('\0', NUMBERS * 8 + LENGTH - NUMBERS)
    -- Tags of another time would be above all new ones.
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

-- Writes a scope. One that is not used for so long is forgotten; when that is, is written when it would be too soon.
local function close_scope(scope, kept_ms)
  local busy = max(now, scope[BLOCK_UNTIL], scope[PAUSE_UNTIL], scope[OPEN_UNTIL])
  for which = 1, 4 do busy = max(busy, scope[EMPTY + which]) end
  local kept_until = ceil(busy) + kept_ms
  local is_too_soon = scope[STATE_UNTIL] < kept_until
  if is_too_soon then scope[STATE_UNTIL] = kept_until + ceil(kept_ms * SLACK) end
  call('SET', scope.state, struct.pack(FORMAT, unpack(scope, 1, LENGTH)), 'KEEPTTL')
  if is_too_soon then call('PEXPIREAT', scope.state, scope[STATE_UNTIL]) end
end

-- Counts calls under way without those of dead processes.
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

-- Moves the counts of the breaker on with the time.
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

-- One scope: what was taken of it, and whether there is room for a call. It does the sums of `podium_domain::limits`, in the
-- same order, so that both come to the same numbers. The constants come from there: `C.<name>` stands for a number.
--
-- A scope is a worker or an account. Its keys:
--   calls      leases of calls under way: ids, scored with when they run out; those that did count until their room is needed
--   state      the numbers of the meter and some names, packed in the order below: who changes it gives the key another name
--   groups     tags: `<tier> <tenant>`; that of the tenant that was granted last is newer in the state, one for each tier
--   waiting:1  of `mini`, waiting:2 of `ultra`: who was told to come back, scored with until when that counts
-- Only `calls` has to hold nothing twice; all of them may be lost at any time.

-- Of requests, tokens, input tokens and output tokens; of each tier; of the scope.
local EMPTY, SAID = 0, 4
local TIER, GROUPS_NOW, LAST_TAG, WAITING_UNTIL = 8, 10, 12, 14
local TIERS_NOW = 17
local TURN_TIER, TURN_NEED, TURN_UNTIL = 18, 19, 20
local BLOCK_UNTIL, PAUSE, FAILURES = 21, 22, 23
local OPEN_UNTIL, OPEN, PROBE_UNTIL = 24, 25, 26
local BEARS, REDUCED_AT, USUAL, OF_LATE = 27, 28, 29, 30
local OUTPUT_MEAN, OUTPUT_DEVIATION, INPUT_RATIO = 31, 32, 33
-- When the keys themselves run out.
local STATE_UNTIL, CALLS_UNTIL, GROUPS_UNTIL = 34, 35, 36
-- The last one is of each tier again.
local TURN_WHO, TURN_TENANT, LAST_TENANT, LENGTH = 37, 38, 38, 40
local FORMAT = '<dddd dddd dd dd dd dd d ddd ddd ddd dddd ddd ddd ssss'
local NUMBERS = 36

-- How much longer than it must a key lives, as a part of its time, so that this is not written each time.
local SLACK = 1 / 8

local call, max, min, ceil = redis.call, math.max, math.min, math.ceil

-- The pace of a limit: milliseconds for each unit, and how many may be taken at once.
local function pace(scope, which)
  local limit, said = scope.per_minute[which], scope[SAID + which]
  if said > 0 then limit = min(limit, said) end
  if limit <= 0 then return false end
  local burst = max(limit * C.burst_s / 60, 1)
  local steady = max(limit - burst, limit / 2)
  local unit = 60000 / steady
  return unit, burst * unit
end

local function set_paces(scope)
  for which = 1, 4 do scope.units[which], scope.bursts[which] = pace(scope, which) end
end

-- Reads a scope. `place` is where its keys begin, `at` where in `numbers` its limits do: most calls at once, then what is allowed a
-- minute of requests, tokens, input tokens and output tokens, 0 for no limit.
local function open_scope(place, numbers, at)
  local packed = call('GET', KEYS[place + 1])
  if not packed then
    packed = string.rep('\0', NUMBERS * 8 + LENGTH - NUMBERS)
    -- Tags of another time would be above all new ones.
    call('DEL', KEYS[place + 2])
  end
  local per_minute = { numbers[at + 1], numbers[at + 2], numbers[at + 3], numbers[at + 4] }
  local scope = {
    calls = KEYS[place], state = KEYS[place + 1], groups = KEYS[place + 2], waiting = place + 2,
    calls_max = numbers[at], per_minute = per_minute, units = {}, bursts = {}, in_flight = false, is_counted = false,
    is_paced = per_minute[1] + per_minute[2] + per_minute[3] + per_minute[4] > 0,
    struct.unpack(FORMAT, packed),
  }
  if scope.is_paced then set_paces(scope) end
  return scope
end

-- Writes a scope. One that is not used for so long is forgotten; when that is, is written when it would be too soon.
local function close_scope(scope, kept_ms)
  local busy = max(now, scope[BLOCK_UNTIL], scope[OPEN_UNTIL])
  for which = 1, 4 do busy = max(busy, scope[EMPTY + which]) end
  local kept_until = ceil(busy) + kept_ms
  local is_too_soon = scope[STATE_UNTIL] < kept_until
  if is_too_soon then scope[STATE_UNTIL] = kept_until + ceil(kept_ms * SLACK) end
  call('SET', scope.state, struct.pack(FORMAT, unpack(scope, 1, LENGTH)), 'KEEPTTL')
  if is_too_soon then call('PEXPIREAT', scope.state, scope[STATE_UNTIL]) end
end

-- Counts calls under way without those whose leases ran out.
local function count_calls(scope)
  call('ZREMRANGEBYSCORE', scope.calls, '-inf', now)
  return call('ZCARD', scope.calls)
end

local function most_calls(scope)
  if scope[BEARS] > 0 then return min(math.floor(scope[BEARS]), scope.calls_max) end
  return scope.calls_max
end

local function add(scope, amounts)
  if not scope.is_paced then return end
  for which = 1, 4 do
    local unit = scope.units[which]
    if unit then scope[EMPTY + which] = max(max(scope[EMPTY + which], now) + amounts[which] * unit, now) end
  end
end

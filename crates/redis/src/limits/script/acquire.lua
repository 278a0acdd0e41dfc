-- Decides on calls of one worker, one after the other: each gets capacity in the worker's and the account's scope, or in neither.
--
-- KEYS[1…5]  calls, state, groups, waiting:1, waiting:2 of the worker; KEYS[6…10] of its account, if that has limits; then the
--            live processes
-- ARGV[1]    numbers: the length of a lease, the lifetime of an unused scope, the longest time before the next request, all in
--            milliseconds; the worker's limits, then the account's
-- ARGV[2…]   one for each call: its tier (1 mini, 2 ultra), the estimated tokens of its prompt, the most tokens of its completion;
--            then the ids of its lease, of the caller and of the tenant
-- Numbers are doubles, texts end with a zero byte.
--
-- Returns five numbers for each call. Granted: 1, reserved tokens of the prompt, reserved tokens of the completion, whether it is a
-- probe, its number among the calls of the worker. Refused: 0, the reason (1 busy, 2 rate, 3 blocked, 4 broken), microseconds until
-- the caller may ask again, a random addition to that of at most so many microseconds, 0.
-- A request whose id already has a lease is granted and extends it.
local WHY = { busy = 1, rate = 2, blocked = 3, broken = 4 }

local function begin(scope, caller)
  for which = 1, 4 do
    local unit = scope.units[which]
    if unit and scope[EMPTY + which] <= 0 then
      scope[EMPTY + which] = now + max(scope.bursts[which] - caller.takes[which] * unit, 0)
    end
  end
end

local function tier_tag(scope, tier) return max(scope[TIER + tier], scope[TIERS_NOW]) end

-- The tag of a tenant, or nil.
local function own_tag(scope, tier, tenant)
  if scope[LAST_TENANT + tier] == tenant then return scope[LAST_TAG + tier] end
  return tonumber(call('HGET', scope.groups, tier .. ' ' .. tenant))
end

local function group_tag(scope, tier, tenant) return max(own_tag(scope, tier, tenant) or 0, scope[GROUPS_NOW + tier]) end

local function goes_before(scope, caller)
  if caller.tier == scope[TURN_TIER] then
    local own = group_tag(scope, caller.tier, caller.tenant)
    local other = group_tag(scope, scope[TURN_TIER], scope[TURN_TENANT])
    return own < other or (own <= other and caller.who ~= '' and caller.who < scope[TURN_WHO])
  end
  local own, other = tier_tag(scope, caller.tier), tier_tag(scope, scope[TURN_TIER])
  return own < other or (own <= other and caller.tier < scope[TURN_TIER])
end

-- The capacity that a caller must leave to the holder of the turn, or nil.
local function left_by(scope, caller)
  if scope[TURN_UNTIL] <= now or scope[TURN_WHO] == caller.who then return nil end
  if goes_before(scope, caller) then return nil end
  return scope[TURN_NEED]
end

-- The reason for which a call has no capacity, and for how long; nil if it has.
local function look(scope, caller)
  local blocked_until = max(scope[BLOCK_UNTIL], scope[PAUSE_UNTIL])
  if blocked_until > now then return 'blocked', blocked_until - now end
  if scope[OPEN_UNTIL] > now then return 'broken', scope[OPEN_UNTIL] - now end
  if scope[OPEN_UNTIL] > 0 and scope[PROBE_UNTIL] > now then return 'broken', C.open_ms end
  local left = left_by(scope, caller)
  local most = most_calls(scope) - (left and 2 or 1)
  if scope.in_flight > most and not scope.is_counted then
    scope.in_flight, scope.is_counted = count_calls(scope), true
  end
  if scope.in_flight > most then return 'busy', 0 end
  left = left or 0
  local wait = 0
  for which = 1, 4 do
    local unit, burst = scope.units[which], scope.bursts[which]
    if unit then
      local queued = max(scope[EMPTY + which] - now, 0)
      local added = caller.takes[which] * unit + left
      local over = queued + added - burst
      if added > burst and left <= 0 then over = queued end
      wait = max(wait, over)
    end
  end
  if wait > C.slack_ms then return 'rate', wait end
  return nil
end

local function service(scope, caller)
  local most = 0
  for which = 1, 4 do
    local unit = scope.units[which]
    if unit then most = max(most, caller.takes[which] * unit) end
  end
  if most > 0 then return most end
  return C.call_ms
end

-- Returns the time until the next request: the earliest, and the most that may be added to it.
local function refuse(scope, caller, why, wait, ask_again_max)
  local most = ask_again_max
  local after, spread
  local function told(longest, a, s)
    after = max(min(a, s > 0 and longest / 2 or longest), 1)
    spread = max(min(s, longest - after), 0)
  end
  if why == 'blocked' or why == 'broken' then
    told(most * C.out_of_order_times, wait, max(wait / 10, C.look_ms))
    return after, spread
  end
  local need = service(scope, caller)
  local those = scope.waiting + caller.tier
  call('ZREMRANGEBYSCORE', KEYS[those], '-inf', now)
  local waiting = call('ZCARD', KEYS[those])
  local is_known = call('ZSCORE', KEYS[those], caller.who)
  if not is_known then waiting = waiting + 1 end
  local takes_turn = left_by(scope, caller) == nil
  if why == 'rate' and takes_turn then
    told(most, wait, 0)
  elseif why == 'rate' then
    local later = max(wait, waiting * need / 2)
    told(most, later, later)
  elseif takes_turn then
    told(most, C.look_ms, C.look_ms)
  else
    told(most, C.look_ms * waiting, C.look_ms * waiting)
  end
  if caller.who == '' then return after, spread end
  local until_ = now + after + spread + C.grace_ms
  if is_known or waiting <= C.waiting_max then
    call('ZADD', KEYS[those], string.format('%.17g', until_), caller.who)
    call('PEXPIRE', KEYS[those], ceil(most * 2 + C.grace_ms))
    scope[WAITING_UNTIL + caller.tier] = max(scope[WAITING_UNTIL + caller.tier], until_)
  end
  if takes_turn then
    scope[TURN_WHO], scope[TURN_TIER], scope[TURN_TENANT] = caller.who, caller.tier, caller.tenant
    scope[TURN_NEED], scope[TURN_UNTIL] = need, until_
  end
  return after, spread
end

-- Writes a tag. A key that was lost and is created again has no expiry, so it must be set again.
local function put_tag(scope, tier, tenant, tag)
  local added = call('HSET', scope.groups, tier .. ' ' .. tenant, string.format('%.17g', tag))
  if added == 1 then scope[GROUPS_UNTIL] = 0 end
end

-- Moves a tier's tag from the state into the key.
local function put_last_tag(scope, tier)
  local tenant = scope[LAST_TENANT + tier]
  scope[LAST_TENANT + tier] = ''
  if tenant ~= '' then put_tag(scope, tier, tenant, scope[LAST_TAG + tier]) end
end

-- Whether another tag fits. At the bound, tags without effect are removed first.
local function has_room_for_tag(scope)
  local count = call('HLEN', scope.groups)
  if count < C.groups_max then return true end
  put_last_tag(scope, 1)
  put_last_tag(scope, 2)
  local all = call('HGETALL', scope.groups)
  for i = 1, #all, 2 do
    if tonumber(all[i + 1]) <= scope[GROUPS_NOW + string.sub(all[i], 1, 1)] then
      call('HDEL', scope.groups, all[i])
      count = count - 1
    end
  end
  return count < C.groups_max
end

-- Makes the tenant of a call the last one of its tier, with a new tag. `own` is its earlier tag, or nil. If its tag does not fit, the
-- tenant counts as new in its next call.
local function set_tag(scope, caller, own, tag, kept_ms)
  local tier, tenant = caller.tier, caller.tenant
  if scope[LAST_TENANT + tier] ~= tenant then
    put_last_tag(scope, tier)
    if own or has_room_for_tag(scope) then
      scope[LAST_TENANT + tier] = tenant
      if not own then put_tag(scope, tier, tenant, tag) end
    end
  end
  scope[LAST_TAG + tier] = tag
  if scope[GROUPS_UNTIL] < now + kept_ms then
    scope[GROUPS_UNTIL] = now + kept_ms + ceil(kept_ms * SLACK)
    call('PEXPIREAT', scope.groups, scope[GROUPS_UNTIL])
  end
end

local function grant(scope, caller, kept_ms)
  add(scope, caller.takes)
  scope.in_flight = scope.in_flight + 1
  local served, tier = service(scope, caller), caller.tier
  scope[TIERS_NOW] = tier_tag(scope, tier)
  scope[TIER + tier] = scope[TIERS_NOW] + served / (tier == 1 and C.mini_weight or 1)
  local own = own_tag(scope, tier, caller.tenant)
  local tag = max(own or 0, scope[GROUPS_NOW + tier])
  scope[GROUPS_NOW + tier] = tag
  set_tag(scope, caller, own, tag + served, kept_ms)
  if scope[WAITING_UNTIL + tier] > now then call('ZREM', KEYS[scope.waiting + tier], caller.who) end
  if scope[TURN_WHO] == caller.who then
    scope[TURN_WHO], scope[TURN_TENANT], scope[TURN_TIER], scope[TURN_NEED], scope[TURN_UNTIL] = '', '', 0, 0, 0
  end
  scope[GRANTED] = scope[GRANTED] + 1
  roll(scope)
  scope[SENT] = scope[SENT] + 1
  local probes = scope[OPEN_UNTIL] > 0
  if probes then scope[PROBE_UNTIL] = now + C.probe_ms_max end
  return probes
end

local numbers = { struct.unpack('<ddd d dddd d dddd', ARGV[1]) }
local kept_ms, ask_again_max = numbers[2], numbers[3]
local scopes = { open_scope(1, numbers, 4) }
if KEYS[7] then scopes[2] = open_scope(6, numbers, 9) end
for i = 1, #scopes do scopes[i].in_flight = call('ZCARD', scopes[i].calls) end
local worker, runs_out = scopes[1], now + lease_ms

-- Adds a lease to all scopes, or extends it. Returns whether it is new in the worker's scope. A new set has no expiry yet.
local function hold(lease)
  local added
  for i = #scopes, 1, -1 do
    local scope = scopes[i]
    added = call('ZADD', scope.calls, runs_out, lease)
    if scope.in_flight == 0 or scope[CALLS_UNTIL] < now + kept_ms then
      scope[CALLS_UNTIL] = ceil(now + kept_ms * (1 + SLACK))
      call('PEXPIREAT', scope.calls, scope[CALLS_UNTIL])
    end
  end
  return added == 1
end

local function decide(packed)
  local tier, input, output, lease, who, tenant = struct.unpack('<dddsss', packed)
  if worker[INPUT_RATIO] > 0 then input = ceil(input * worker[INPUT_RATIO]) end
  if worker[OUTPUT_MEAN] > 0 then
    output = min(ceil(worker[OUTPUT_MEAN] + worker[OUTPUT_DEVIATION] * C.deviations), output)
  end
  local caller = { who = who, tier = tier, tenant = tenant, takes = { 1, input + output, input, output } }
  for i = 1, #scopes do
    begin(scopes[i], caller)
    local why, wait = look(scopes[i], caller)
    if why and call('ZSCORE', worker.calls, lease) then break end
    if why then
      local after, spread = refuse(scopes[i], caller, why, wait, ask_again_max)
      return 0, WHY[why], ceil(after * 1000), math.floor(spread * 1000), 0
    end
  end
  if not hold(lease) then return 1, input, output, 0, worker[GRANTED] end
  local probes = 0
  for i = 1, #scopes do
    if grant(scopes[i], caller, kept_ms) then probes = 1 end
  end
  return 1, input, output, probes, worker[GRANTED]
end

local answers = {}
for i = 2, #ARGV do
  local at = #answers
  answers[at + 1], answers[at + 2], answers[at + 3], answers[at + 4], answers[at + 5] = decide(ARGV[i])
end
for i = 1, #scopes do close_scope(scopes[i], kept_ms) end
return answers

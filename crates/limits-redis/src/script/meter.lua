-- One scope: what was taken of it, and whether there is room for a call. It does the sums of `podium_domain::limits`, in the
-- same order, so that both come to the same numbers; its constants come from there, as `C`.
--
-- A scope is a worker or an account. Its keys:
--   calls    leases of calls under way: ids, scored with when they run out
--   state    the numbers of the meter
--   groups   tags: `<tier> <tenant>`
--   waiting  of the caller's tier: who was told to come back, scored with until when that counts
-- Only `calls` has to hold nothing twice; all of them may be lost at any time.

local NUMBERS = {
  'empty1', 'empty2', 'empty3', 'empty4', 'said1', 'said2', 'said3', 'said4',
  'tiers_now', 'tier1', 'tier2', 'groups_now1', 'groups_now2',
  'turn_tier', 'turn_need', 'turn_until',
  'block_until', 'pause', 'failures', 'open_until', 'open', 'probe_until', 'bears', 'reduced_at', 'usual', 'of_late',
  'output_mean', 'output_deviation', 'input_ratio',
}

-- Reads a scope. `place` is where its keys begin, `limits` where its arguments do: most calls at once, then what is allowed a
-- minute of requests, tokens, input tokens and output tokens, 0 for no limit.
local function open_scope(place, limits)
  local scope = { calls = KEYS[place], state = KEYS[place + 1], groups = KEYS[place + 2], waiting = KEYS[place + 3] }
  local fields = { 'turn_who', 'turn_tenant' }
  for i = 1, #NUMBERS do fields[i + 2] = NUMBERS[i] end
  local values = redis.call('HMGET', scope.state, unpack(fields))
  scope.turn_who, scope.turn_tenant = values[1] or '', values[2] or ''
  scope.was = {}
  for i = 1, #NUMBERS do
    local value = tonumber(values[i + 2] or '0')
    scope[NUMBERS[i]] = value
    scope.was[NUMBERS[i]] = value
  end
  scope.was_who, scope.was_tenant = scope.turn_who, scope.turn_tenant
  scope.calls_max = tonumber(ARGV[limits])
  scope.per_minute = {}
  for which = 1, 4 do scope.per_minute[which] = tonumber(ARGV[limits + which]) end
  redis.call('ZREMRANGEBYSCORE', scope.calls, '-inf', now)
  scope.in_flight = redis.call('ZCARD', scope.calls)
  return scope
end

-- Writes what changed. A scope that is not used for so long is forgotten.
local function close_scope(scope, kept_ms)
  local changed = {}
  for i = 1, #NUMBERS do
    local name = NUMBERS[i]
    if scope[name] ~= scope.was[name] then
      changed[#changed + 1] = name
      changed[#changed + 1] = string.format('%.17g', scope[name])
    end
  end
  if scope.turn_who ~= scope.was_who or scope.turn_tenant ~= scope.was_tenant then
    changed[#changed + 1] = 'turn_who'
    changed[#changed + 1] = scope.turn_who
    changed[#changed + 1] = 'turn_tenant'
    changed[#changed + 1] = scope.turn_tenant
  end
  if #changed > 0 then redis.call('HSET', scope.state, unpack(changed)) end
  local busy = math.max(scope.block_until, scope.open_until, now)
  for which = 1, 4 do busy = math.max(busy, scope['empty' .. which]) end
  redis.call('PEXPIRE', scope.state, math.ceil(busy - now) + kept_ms)
end

-- How long the leases are kept: until the last one runs out.
local function keep_calls(scope)
  local last = redis.call('ZRANGE', scope.calls, -1, -1, 'WITHSCORES')
  if last[2] then redis.call('PEXPIREAT', scope.calls, last[2]) end
end

-- The pace of a limit: milliseconds for each unit, and how many may be taken at once.
local function pace(scope, which)
  local limit, said = scope.per_minute[which], scope['said' .. which]
  if said > 0 then limit = math.min(limit, said) end
  if limit <= 0 then return nil end
  local burst = math.max(limit * C.burst_s / 60, 1)
  local steady = math.max(limit - burst, limit / 2)
  local unit = 60000 / steady
  return unit, burst * unit
end

local function begin(scope)
  for which = 1, 4 do
    local unit, burst = pace(scope, which)
    if unit and scope['empty' .. which] <= 0 then scope['empty' .. which] = now + burst end
  end
end

local function most_calls(scope)
  if scope.bears > 0 then return math.min(math.floor(scope.bears), scope.calls_max) end
  return scope.calls_max
end

local function tier_tag(scope, tier) return math.max(scope['tier' .. tier], scope.tiers_now) end

local function group_tag(scope, tier, tenant)
  local own = tonumber(redis.call('HGET', scope.groups, tier .. ' ' .. tenant) or '0')
  return math.max(own, scope['groups_now' .. tier])
end

local function goes_before(scope, caller)
  if caller.tier == scope.turn_tier then
    local own = group_tag(scope, caller.tier, caller.tenant)
    local other = group_tag(scope, scope.turn_tier, scope.turn_tenant)
    return own < other or (own <= other and caller.who ~= '' and caller.who < scope.turn_who)
  end
  local own, other = tier_tag(scope, caller.tier), tier_tag(scope, scope.turn_tier)
  return own < other or (own <= other and caller.tier < scope.turn_tier)
end

-- What a caller has to leave to somebody else, or nil.
local function left_by(scope, caller)
  if scope.turn_who == '' or scope.turn_until <= now or scope.turn_who == caller.who then return nil end
  if goes_before(scope, caller) then return nil end
  return scope.turn_need
end

-- Why there is no room, and for how long; nil if there is.
local function look(scope, caller)
  if scope.block_until > now then return 'blocked', scope.block_until - now end
  if scope.open_until > now then return 'broken', scope.open_until - now end
  if scope.open_until > 0 and scope.probe_until > now then return 'broken', C.open_ms end
  local left = left_by(scope, caller)
  if scope.in_flight + 1 + (left and 1 or 0) > most_calls(scope) then return 'busy', 0 end
  left = left or 0
  local wait = 0
  for which = 1, 4 do
    local unit, burst = pace(scope, which)
    if unit then
      local queued = math.max(scope['empty' .. which] - now, 0)
      local added = caller.takes[which] * unit + left
      local over = queued + added - burst
      if added > burst and left <= 0 then over = queued end
      wait = math.max(wait, over)
    end
  end
  if wait > C.slack_ms then return 'rate', wait end
  return nil
end

local function service(scope, caller)
  local most = 0
  for which = 1, 4 do
    local unit = pace(scope, which)
    if unit then most = math.max(most, caller.takes[which] * unit) end
  end
  if most > 0 then return most end
  return C.call_ms
end

-- Answers when to ask again: the earliest time, and up to how much later.
local function refuse(scope, caller, why, wait)
  local most = caller.ask_again_max
  local after, spread
  local function told(longest, a, s)
    after = math.max(math.min(a, s > 0 and longest / 2 or longest), 1)
    spread = math.max(math.min(s, longest - after), 0)
  end
  if why == 'blocked' or why == 'broken' then
    told(most * C.out_of_order_times, wait, math.max(wait / 10, C.look_ms))
    return after, spread
  end
  local need = service(scope, caller)
  redis.call('ZREMRANGEBYSCORE', scope.waiting, '-inf', now)
  local waiting = redis.call('ZCARD', scope.waiting)
  local is_known = redis.call('ZSCORE', scope.waiting, caller.who)
  if not is_known then waiting = waiting + 1 end
  local takes_turn = left_by(scope, caller) == nil
  if why == 'rate' and takes_turn then
    told(most, wait, 0)
  elseif why == 'rate' then
    local later = math.max(wait, waiting * need / 2)
    told(most, later, later)
  elseif takes_turn then
    told(most, C.look_ms, C.look_ms)
  else
    told(most, C.look_ms * waiting, C.look_ms * waiting)
  end
  if caller.who == '' then return after, spread end
  local until_ = now + after + spread + C.grace_ms
  if is_known or waiting <= C.waiting_max then
    redis.call('ZADD', scope.waiting, string.format('%.17g', until_), caller.who)
    redis.call('PEXPIRE', scope.waiting, math.ceil(most * 2 + C.grace_ms))
  end
  if takes_turn then
    scope.turn_who, scope.turn_tier, scope.turn_tenant = caller.who, caller.tier, caller.tenant
    scope.turn_need, scope.turn_until = need, until_
  end
  return after, spread
end

local function add(scope, amounts)
  for which = 1, 4 do
    local unit = pace(scope, which)
    if unit then
      local name = 'empty' .. which
      scope[name] = math.max(math.max(scope[name], now) + amounts[which] * unit, now)
    end
  end
end

-- Forgets tags that mean nothing any more, once there are too many; answers how many are left.
local function forget_groups(scope)
  local count = redis.call('HLEN', scope.groups)
  if count < C.groups_max then return count end
  local all = redis.call('HGETALL', scope.groups)
  for i = 1, #all, 2 do
    if tonumber(all[i + 1]) <= scope['groups_now' .. string.sub(all[i], 1, 1)] then
      redis.call('HDEL', scope.groups, all[i])
      count = count - 1
    end
  end
  return count
end

local function grant(scope, caller, lease, runs_out, kept_ms)
  add(scope, caller.takes)
  redis.call('ZADD', scope.calls, runs_out, lease)
  local served = service(scope, caller)
  scope.tiers_now = tier_tag(scope, caller.tier)
  scope['tier' .. caller.tier] = scope.tiers_now + served / (caller.tier == 1 and C.mini_weight or 1)
  local tag = group_tag(scope, caller.tier, caller.tenant)
  scope['groups_now' .. caller.tier] = tag
  local group = caller.tier .. ' ' .. caller.tenant
  if forget_groups(scope) < C.groups_max or redis.call('HEXISTS', scope.groups, group) == 1 then
    redis.call('HSET', scope.groups, group, string.format('%.17g', tag + served))
  end
  redis.call('PEXPIRE', scope.groups, kept_ms)
  redis.call('ZREM', scope.waiting, caller.who)
  if scope.turn_who == caller.who then
    scope.turn_who, scope.turn_tenant, scope.turn_tier, scope.turn_need, scope.turn_until = '', '', 0, 0, 0
  end
  local probes = scope.open_until > 0
  if probes then scope.probe_until = now + C.probe_ms_max end
  return probes
end

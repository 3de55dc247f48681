-- The pace of requests to a model's endpoint, once it has refused some because they were too many. Grants are spaced at
-- a rate that is learned: two refusals are two moments in which the endpoint had nothing left, so what it served in
-- between is its refill. The rate is kept slightly above that, so that the next refusal corrects it. A grant goes to the
-- owner whose turn it is: each grant moves the owner's turn on by one over its weight, and the earliest turn is next.
-- Where the endpoint states its limits, each is a bucket of what it has left, from which a grant takes its part.
-- KEYS: pace, weights (by name of an owner), paces (the endpoints that are shown) · Arguments: operation, endpoint, model
-- (its name), key (its place, where there are several), and by operation:
--   refused: the endpoint refused a request; token (of the model call), owner (of its run), successes (those known to the call since it
--     fails, -1: this is its first failure), error, retry_ms (what the endpoint asked for, -1: nothing), longest_ms (the
--     most of it that counts), served (requests of the process that were served in the last second), granted (whether
--     it had been granted)
--   passed: the endpoint has begun to reply
--   heard: the endpoint stated its limits; limits: by kind what it allows in a minute and what is left ({}: all are far)
--   ask: what may be sent; process, lease_ms (how long its waiting requests count without another ask), waiting: by
--     owner the number of requests and the highest priority; cost: what a request takes of the limits on tokens
-- Returns by operation: refused: {'alone' (a failure of this call only) or 'paced', milliseconds to the next grant,
-- successes}; ask: {'open'} where no limit is known, else {'paced', milliseconds to the next ask, whether all was refused
-- lately, error, then for each grant its owner and its milliseconds from now}; passed, heard: {'open'} or {'paced'}.
local FIRST_RATE, LEAST_RATE, AHEAD_MS, LONGEST_MS, SHORTEST_MS = 2, 0.2, 50, 250, 50
-- What one of several served requests is asked to wait concerns it alone, perhaps; further refusals double this.
local FIRST_BLOCK_MS = 1000
local KEPT_MS, SUSPECTED_MS, SAME_MS = 600000, 60000, 250
local arguments = cjson.decode(ARGV[1])
local pace, weights, paces = KEYS[1], KEYS[2], KEYS[3]
local stored = redis.call('GET', pace)
local clock = redis.call('TIME')
math.randomseed(clock[2])
local whole = clock[1] * 1000 + math.floor(clock[2] / 1000)
local state = stored and cjson.decode(stored) or {began = whole, successes = 0}
local now = whole - state.began + (clock[2] % 1000) / 1000  -- small numbers: JSON keeps 14 digits

local function store(kept_ms)
  redis.call('SET', pace, cjson.encode(state), 'PX', kept_ms)
end

local function keep()
  state.ends, state.model, state.key = now + KEPT_MS, arguments.model, arguments.key
  redis.call('SADD', paces, arguments.endpoint)
  if redis.call('TTL', paces) * 1000 < KEPT_MS then redis.call('PEXPIRE', paces, KEPT_MS) end
end

local function prepare()
  state.turn, state.turns, state.processes = state.turn or 0, state.turns or {}, state.processes or {}
  state.next = state.next or now
end

local function begin(served)
  state.rate, state.growth, state.margin, state.clean = math.max(FIRST_RATE, served), 2, 1, 0
  state.empty, state.served, state.refused, state.since = now, 0, now, 0
  state.step, state.used = now, 0
  prepare()
  state.next = now + 1000 / state.rate
end

-- Learns from a refusal. Several in flight at the same time are one.
local function learn(granted)
  if granted then state.served, state.since, state.successes = state.served - 1, state.since - 1, state.successes - 1 end
  state.step, state.used = now, 0
  local since, whole_time = (now - state.refused) / 1000, (now - state.empty) / 1000
  if not granted or now - state.refused < SAME_MS then return end
  if state.since < 1 then  -- all was refused: rarer and rarer requests show when that ends
    state.rate, state.growth, state.margin = math.max(LEAST_RATE, state.rate / 2), 2, 1
    state.served, state.empty, state.dead = 0, now, true
  elseif whole_time < 1 then
    state.rate = math.max(LEAST_RATE, state.rate * 0.8)
  else
    local refill, lately = state.served / whole_time, state.since / since
    local before = state.rate / (state.since > state.clean and math.max(state.growth, 1.1) or state.growth)
    if state.growth == 1 and since >= 1 and lately < 0.7 * refill then  -- it has become less
      refill, state.served, state.empty = lately, state.since, state.refused
    end
    if (state.growth > 1.06 or state.since > state.clean) and before > 1.1 * refill then
      -- While the rate grew, the endpoint may have been full, and its refill lost: it may be as much as was clean before.
      refill, state.served, state.empty = math.sqrt(before * refill), 0, now
      state.growth = 1 + (state.growth - 1) / 4
    else
      state.growth = 1
    end
    state.rate = math.max(LEAST_RATE, refill)
    state.margin = 1.007 + 0.3 / math.max(state.served, 8)
    state.clean = 2 / (state.margin - 1)
    if state.served >= 200 then state.served, state.empty = 0, now end
  end
  state.refused, state.since = now, 0
end

local function refused()
  local knew = arguments.successes
  if knew >= 0 and state.successes > knew then
    return {'alone', 0, state.successes}  -- others succeeded while this call failed again: the trouble is its own
  end
  if not state.rate and (not state.suspect or state.suspect == arguments.token) then
    state.suspect, state.suspect_owner = arguments.token, arguments.owner
    store(state.ends and math.max(1, math.ceil(state.ends - now)) or SUSPECTED_MS)
    return {'alone', 0, state.successes}
  end
  if state.rate then
    if arguments.granted and now - state.refused >= SAME_MS then
      state.block = state.since > 1 and FIRST_BLOCK_MS or math.min(2 * state.block, arguments.longest_ms)
    end
    learn(arguments.granted)
    if state.only ~= arguments.owner then state.only = nil end
  else
    begin(arguments.served)
    state.only = state.suspect_owner == arguments.owner and arguments.owner or nil
    state.block = arguments.longest_ms
  end
  state.suspect, state.error, state.refusals = nil, arguments.error, (state.refusals or 0) + 1
  if arguments.retry_ms >= 0 then
    state.next = math.max(state.next, now + math.min(arguments.retry_ms, state.block))
  end
  keep()
  store(KEPT_MS)
  return {'paced', math.ceil(math.max(state.next - now, 0)), state.successes}
end

-- What is stated is not older than a second, and the grants since then were taken from what is left here.
local function heard()
  local buckets = {}
  for kind, stated in pairs(arguments.limits) do
    local own = state.buckets and state.buckets[kind]
    local left = own and math.min(own.limit, own.left + (now - own.at) * own.limit / 60000)
    if left and left < stated[2] then left = (left + stated[2]) / 2 else left = stated[2] end
    buckets[kind] = {limit = stated[1], left = left, at = now}
  end
  state.buckets = next(buckets) and buckets or nil
  if not (state.rate or state.buckets) then
    redis.call('DEL', pace)
    return {'open'}
  end
  prepare()
  keep()
  store(KEPT_MS)
  return {'paced'}
end

local function passed()
  if not stored then return {'open'} end
  if not state.rate then
    state.suspect, state.successes = nil, state.successes + 1
    store(state.ends and math.max(1, math.ceil(state.ends - now)) or SUSPECTED_MS)
    return {'open'}
  end
  if state.dead then
    state.dead, state.rate, state.growth = nil, math.max(state.rate, FIRST_RATE), 2
    state.next = math.min(state.next, now)
    state.step, state.used = now, 0
  end
  store(math.max(1, math.ceil(state.ends - now)))
  return {'paced'}
end

-- Raises the rate after a clean second in which most of it was used.
local function grow()
  if not state.rate then return end
  local seconds = (now - state.step) / 1000
  if seconds < 1 then return end
  local busy = state.used > 0 and state.used + 1 >= 0.8 * state.rate * math.min(seconds, 1)
  state.step, state.used = now, 0
  if busy and state.growth > 1 then
    state.rate = state.rate * state.growth
  elseif busy and state.since > state.clean then
    state.rate = state.rate * 1.05
  end
end

-- Returns the owner whose turn it is, and the process with the most urgent request of it. Of equals it is any one: the
-- first ones may all be callers whose own requests are refused.
local function chosen()
  local owner, process, turn, priority, equals
  for name, each in pairs(state.processes) do
    for whose, wanted in pairs(each.waiting) do
      local at = math.max(state.turns[whose] or 0, state.turn)
      local is_first = not owner or at < turn or (whose == owner and wanted[2] > priority)
      if wanted[1] > 0 and owner and at == turn and whose ~= owner then
        equals = equals + 1
        is_first = math.random(equals) == 1
      elseif wanted[1] > 0 and is_first and whose ~= owner then
        equals = 1
      end
      if wanted[1] > 0 and is_first then owner, process, turn, priority = whose, name, at, wanted[2] end
    end
  end
  return owner, process, turn
end

local function weight_of(owner)
  local name = string.match(owner, '^owner:(.*)$')
  return name and tonumber(redis.call('HGET', weights, name)) or 1
end

local function cost_of(kind)
  local cost = arguments.cost
  if kind == 'tokens' then return cost.input + cost.output end
  return kind == 'requests' and 1 or cost[kind]
end

-- Returns when all buckets have what a request takes.
local function filled()
  local at = now
  for kind, bucket in pairs(state.buckets or {}) do
    bucket.left, bucket.at = math.min(bucket.limit, bucket.left + (now - bucket.at) * bucket.limit / 60000), now
    local lacking = math.min(cost_of(kind), bucket.limit) - bucket.left
    at = math.max(at, now + lacking * 60000 / bucket.limit)
  end
  return at
end

local function take()
  for kind, bucket in pairs(state.buckets or {}) do bucket.left = bucket.left - cost_of(kind) end
end

local function give(each, owner, at)
  each.granted[#each.granted + 1] = {owner, at}
  each.waiting[owner][1] = each.waiting[owner][1] - 1
  state.successes = state.successes + 1
  if state.rate then state.served, state.since = state.served + 1, state.since + 1 end
end

-- Lets those go on at once whose owners were refused nothing yet: the trouble may be that of the one which was.
local function grant_others()
  if not state.only or state.buckets then return end
  for _, each in pairs(state.processes) do
    for owner, wanted in pairs(each.waiting) do
      while owner ~= state.only and wanted[1] > 0 do give(each, owner, now) end
    end
  end
end

local function grant()
  grant_others()
  state.next = math.max(state.next, filled())
  while state.next <= now + AHEAD_MS do
    local owner, process, turn = chosen()
    if not owner then break end
    local at = math.max(state.next, now)
    give(state.processes[process], owner, at)
    state.turn, state.turns[owner] = turn, turn + 1 / weight_of(owner)
    take()
    if state.rate then
      state.used = state.used + 1
      state.next = at + 1000 / (state.rate * state.margin)
    end
    state.next = math.max(state.next, filled())
  end
end

-- Forgets what has no effect any more: turns that are not ahead of the others, and processes in which nothing waits.
local function forget()
  for name, each in pairs(state.processes) do
    for owner, wanted in pairs(each.waiting) do
      if wanted[1] < 1 then each.waiting[owner] = nil end
    end
    if not next(each.waiting) and not next(each.granted) then state.processes[name] = nil end
  end
  for owner, turn in pairs(state.turns) do
    if turn <= state.turn then state.turns[owner] = nil end
  end
end

local function ask()
  if not (state.rate or state.buckets) then return {'open'} end
  grow()
  for name, each in pairs(state.processes) do
    if each.alive < now then state.processes[name] = nil end
  end
  local mine = state.processes[arguments.process] or {granted = {}}
  mine.alive, mine.waiting = now + arguments.lease_ms, arguments.waiting
  for _, granted in ipairs(mine.granted) do  -- by another process's ask
    local wanted = mine.waiting[granted[1]]
    if wanted then wanted[1] = wanted[1] - 1 end
  end
  state.processes[arguments.process] = mine
  grant()
  local wait = math.min(LONGEST_MS, math.max(SHORTEST_MS, math.ceil(state.next - now - AHEAD_MS / 2)))
  if state.only then wait = SHORTEST_MS end  -- another owner's request that comes meanwhile goes at once
  local answer = {'paced', wait, state.dead and 1 or 0, state.error or ''}
  for _, granted in ipairs(mine.granted) do
    answer[#answer + 1] = granted[1]
    answer[#answer + 1] = math.max(0, math.floor(granted[2] - now))
  end
  mine.granted = {}
  if chosen() then keep() end
  forget()
  store(math.max(1, math.ceil(state.ends - now)))
  return answer
end

return ({refused = refused, passed = passed, heard = heard, ask = ask})[arguments.operation]()

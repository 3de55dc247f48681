-- An outage of a model's endpoint is what several runs saw, with no success of any other run in between: one failure may
-- be that request's own. One run of the fleet probes the endpoint, the others wait; after a success they follow.
-- Where the account's limit on spending is reached, nothing is sent until its day ends; one run probes it then.
-- KEYS: outage, paces (the endpoints that are shown) · Arguments: operation, token (of one model call), and by operation:
--   failed: the call failed; error, owner (of the run: all of one owner are one witness, '': the call is one),
--     retry_ms (what the endpoint asked for, -1: nothing; the next probe is due after longest_ms at the latest, because it
--     may concern its owner alone), first_ms, longest_ms, jitter (0.5 to 1), successes (those known to the call since it
--     fails, -1: this is its first failure)
--   ask: whether a request may be sent; lease_ms (how long a probe counts as alive), failed (whether the call did)
--   spent: the limit on spending is reached; error, endpoint, model (its name), key (its place, where there are several)
--   look: whether that is so
--   renew: the probe still runs; lease_ms
--   passed: the endpoint has begun to reply to the call
--   left: the probe ended without an answer, with its run
-- Returns an answer, milliseconds, the outage's error, and the number of successes: 'open' (nothing failed lately), 'go',
-- 'ahead' (the call is the probe), 'wait' (ask again after so long), 'spent' (the same, for the limit on spending), or
-- 'alone' (a failure of this call only).
local LOOK_MS, KEPT_MS, GRACE_MS, DAY_MS = 250, 600000, 500, 86400000
local arguments = cjson.decode(ARGV[1])
local outage, token = KEYS[1], arguments.token
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local state, failures, due, prober, alive, reason, suspect, successes, spends = unpack(redis.call('HMGET', outage,
  'state', 'failures', 'due', 'prober', 'alive', 'error', 'suspect', 'successes', 'spent'))
failures, due, alive = tonumber(failures), tonumber(due), tonumber(alive)
successes = tonumber(successes) or 0
local probes = state == 'closed' and prober == token

local function failed()
  local asked = math.min(arguments.retry_ms, arguments.longest_ms)
  local witness = (arguments.owner or '') ~= '' and arguments.owner or token
  -- Others succeeded while this call failed again and again: the trouble is its own.
  local alone = arguments.successes >= 0 and successes > arguments.successes
  if state == 'closed' and not probes then
    -- A request from before: only what the endpoint asks for is news.
    if not alone and asked >= 0 and now + asked > due then
      due = now + asked
      redis.call('HSET', outage, 'due', due)
    end
  elseif alone or (not probes and (not suspect or suspect == witness)) then
    redis.call('HSET', outage, 'successes', successes, 'error', arguments.error)
    if not alone then redis.call('HSET', outage, 'suspect', witness) end
    redis.call('PEXPIRE', outage, KEPT_MS)
    return {'alone', 0, arguments.error, successes}
  else
    redis.call('HDEL', outage, 'spent')
    failures = (failures or 0) + 1
    local delay = math.min(arguments.first_ms * 2 ^ math.min(failures - 1, 30), arguments.longest_ms) * arguments.jitter
    if asked >= 0 then delay = asked end
    due = now + math.floor(delay)
    redis.call('HSET', outage, 'state', 'closed', 'failures', failures, 'due', due, 'prober', '', 'error', arguments.error,
      'successes', successes)
  end
  redis.call('PEXPIRE', outage, due - now + KEPT_MS)
  return {'wait', math.max(due - now, 0), arguments.error, successes}
end

local function spent()
  due = math.floor(now / DAY_MS + 1) * DAY_MS
  redis.call('HSET', outage, 'state', 'closed', 'failures', 0, 'due', due, 'prober', '', 'error', arguments.error,
    'successes', successes, 'spent', 1, 'model', arguments.model, 'key', arguments.key or '')
  local kept = due - now + KEPT_MS
  redis.call('PEXPIRE', outage, kept)
  redis.call('SADD', KEYS[2], arguments.endpoint)
  if redis.call('TTL', KEYS[2]) * 1000 < kept then redis.call('PEXPIRE', KEYS[2], kept) end
  return {'spent', due - now, arguments.error, successes}
end

local function look()
  if state == 'closed' and spends and now < due then return {'spent', due - now, reason, successes} end
  return {'open', 0, '', successes}
end

local function passed()
  if redis.call('EXISTS', outage) == 0 then return end
  redis.call('HINCRBY', outage, 'successes', 1)
  redis.call('HDEL', outage, 'suspect', 'state', 'failures', 'prober', 'spent')
end

local function ask()
  if state == 'closed' then
    -- The turn of a call that has not failed comes first: it may be others' requests that the endpoint refuses.
    local ready = due + (arguments.failed and GRACE_MS or 0)
    if spends and now < due then return look() end
    if now < ready then return {'wait', ready - now, reason, successes} end
    if prober ~= '' and not probes and now < alive then
      return {'wait', math.min(LOOK_MS, alive - now), reason, successes}
    end
    redis.call('HSET', outage, 'prober', token, 'alive', now + arguments.lease_ms)
    return {'ahead', 0, reason, successes}
  end
  return {redis.call('EXISTS', outage) == 1 and 'go' or 'open', 0, reason or '', successes}
end

if arguments.operation == 'failed' then return failed() end
if arguments.operation == 'ask' then return ask() end
if arguments.operation == 'spent' then return spent() end
if arguments.operation == 'look' then return look() end
if arguments.operation == 'passed' then
  passed()
elseif probes and arguments.operation == 'renew' then
  redis.call('HSET', outage, 'alive', now + arguments.lease_ms)
elseif probes and arguments.operation == 'left' then
  redis.call('HSET', outage, 'prober', '')
end
return {'open', 0, '', successes}

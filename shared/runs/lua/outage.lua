-- An outage of a model's endpoint: one run of the fleet probes it, the others wait; after a success they follow in a ramp
-- that doubles every second, because a recovered endpoint that gets all of them at once fails again.
-- KEYS: outage · Arguments: operation, token (of one model call), and by operation:
--   failed: the call failed, or a probe did; error, retry_ms (what the endpoint asked for, -1: nothing), first_ms,
--     longest_ms, jitter (0.5 to 1)
--   ask: whether a request may be sent; lease_ms (how long a probe counts as alive)
--   renew: the probe still runs; lease_ms
--   passed: the probe was answered
--   left: the probe ended without an answer, with its run
-- Returns an answer and milliseconds and the outage's error: 'open' (there is no outage), 'go' (one of the ramp), 'probe',
-- or 'wait' (ask again after so long).
local RAMP_MS, LOOK_MS, KEPT_MS = 10000, 250, 3600000
local arguments = cjson.decode(ARGV[1])
local outage = KEYS[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local state, failures, due, prober, alive, since, granted, reason = unpack(redis.call('HMGET', outage,
  'state', 'failures', 'due', 'prober', 'alive', 'since', 'granted', 'error'))
due, alive, since, granted = tonumber(due), tonumber(alive), tonumber(since), tonumber(granted)
local probes = state == 'closed' and prober == arguments.token

if arguments.operation == 'failed' then
  local asked = arguments.retry_ms
  if state == 'closed' and not probes then
    -- A request from before: only what the endpoint asks for is news.
    if asked >= 0 and now + asked > due then
      due = now + asked
      redis.call('HSET', outage, 'due', due)
    end
  else
    failures = (tonumber(failures) or 0) + 1
    local delay = math.min(arguments.first_ms * 2 ^ math.min(failures - 1, 30), arguments.longest_ms) * arguments.jitter
    if asked >= 0 then delay = asked end
    due = now + math.floor(delay)
    redis.call('HSET', outage, 'state', 'closed', 'failures', failures, 'due', due, 'prober', '', 'error', arguments.error)
  end
  redis.call('PEXPIRE', outage, due - now + KEPT_MS)
  return {'wait', math.max(due - now, 0), arguments.error}
elseif arguments.operation == 'renew' then
  if probes then redis.call('HSET', outage, 'alive', now + arguments.lease_ms) end
elseif arguments.operation == 'passed' then
  if probes then redis.call('HSET', outage, 'state', 'ramp', 'since', now, 'granted', 1, 'prober', '') end
elseif arguments.operation == 'left' then
  if probes then redis.call('HSET', outage, 'prober', '') end
elseif state == 'closed' then
  if now < due then return {'wait', due - now, reason} end
  if prober ~= '' and not probes and now < alive then return {'wait', math.min(LOOK_MS, alive - now), reason} end
  redis.call('HSET', outage, 'prober', arguments.token, 'alive', now + arguments.lease_ms)
  return {'probe', 0, reason}
elseif state == 'ramp' then
  local age = now - since
  if age < RAMP_MS then
    if granted < 2 ^ (age / 1000) then
      redis.call('HINCRBY', outage, 'granted', 1)
      return {'go', 0, reason}
    end
    return {'wait', math.ceil(math.log(granted) / math.log(2) * 1000 - age) + 1, reason}
  end
  redis.call('DEL', outage)
end
return {'open', 0, ''}

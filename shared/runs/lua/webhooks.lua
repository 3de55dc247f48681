-- The queue of notifications that were not delivered, by the time at which they are due. What failed for good stays in it,
-- so that it is listed, until its record is gone.
-- KEYS: webhooks · Arguments: operation, record_head and record_tail (a record's key around its id), and by operation:
--   take: leases what is due, so that no other worker sends the same try; at_most, lease_ms. Returns for each a list:
--     notification (with this try in its tries), webhook, session, event
--   settle: a try ended; notification, gone (the receiver wants no more of this delegation), delay_ms (until the next try,
--     if there is one), metrics and counts. It does not count where it failed after another try had begun
--   again: all of a delegation are due now, as if never tried; delegation. Returns their number
local arguments = cjson.decode(ARGV[1])
local queue, operation, DAY = KEYS[1], arguments.operation, 24 * 3600 * 1000
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function hash_of(delegation)
  return arguments.record_head .. delegation .. arguments.record_tail .. ':webhooks'
end

local function read(id)
  local delegation, seq = string.match(id, '^(.+)%-(%d+)$')
  local text = redis.call('HGET', hash_of(delegation), seq)
  return text and cjson.decode(text), delegation, seq
end

local function write(kept, delegation, seq, due)
  redis.call('HSET', hash_of(delegation), seq, cjson.encode(kept))
  redis.call('ZADD', queue, due, kept.id)
end

if operation == 'take' then
  local taken = {}
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'LIMIT', 0, arguments.at_most)) do
    local kept, delegation, seq = read(id)
    local record = arguments.record_head .. delegation .. arguments.record_tail
    local entry = redis.call('XRANGE', record .. ':events', seq .. '-0', seq .. '-0')[1]
    if not kept or not entry then
      redis.call('ZREM', queue, id)
    elseif kept.state == 'failed' then
      redis.call('ZADD', queue, now + DAY, id)
    elseif redis.call('HEXISTS', hash_of(delegation), 'gone') == 1 then
      kept.state, kept.error = 'failed', 'not sent: the receiver had answered 410'
      write(kept, delegation, seq, now + DAY)
    else
      kept.tries, kept.leasedUntil = kept.tries + 1, now + arguments.lease_ms
      write(kept, delegation, seq, kept.leasedUntil)
      local webhook, session = unpack(redis.call('HMGET', record, 'webhook', 'session'))
      taken[#taken + 1] = {cjson.encode(kept), webhook, session, entry[2][2]}
    end
  end
  return taken
elseif operation == 'settle' then
  local outcome = cjson.decode(arguments.notification)
  local kept, delegation, seq = read(outcome.id)
  if not kept then
    redis.call('ZREM', queue, outcome.id)
  elseif kept.tries == outcome.tries or outcome.state == 'delivered' then
    if kept.leasedUntil then count(arguments.metrics, arguments.counts) end  -- else it was settled before
    write(outcome, delegation, seq, now + (arguments.delay_ms or DAY))
    if outcome.state == 'delivered' then redis.call('ZREM', queue, outcome.id) end
    if arguments.gone then redis.call('HSET', hash_of(delegation), 'gone', '1') end
  end
  return
end

local notifications, count = hash_of(arguments.delegation), 0
redis.call('HDEL', notifications, 'gone')
for _, seq in ipairs(redis.call('HKEYS', notifications)) do
  local kept = cjson.decode(redis.call('HGET', notifications, seq))
  if (kept.leasedUntil or 0) <= now then  -- else it is being sent
    kept.state, kept.tries, kept.nextTryAt = 'pending', 0, cjson.null
    write(kept, arguments.delegation, seq, now)
  end
  count = count + 1
end
return count

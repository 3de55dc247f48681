-- The queue of notifications that were not delivered, by the time at which they are due. What failed for good stays in it,
-- so that it is listed, until its record is gone.
-- KEYS: webhooks · Arguments: operation, record_head and record_tail (a record's key around its id), and by operation:
--   take: leases what is due, so that no other worker sends the same try; at_most, lease_ms, of_host (how many a host may
--     have under way), busy (how many each has), looked_at and pause_ms: where so many are due and none can be sent, those
--     are due later, so that others are found. Hosts come in turn. Returns for each a list:
--     notification (with this try in its tries), webhook, session, event, host
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

-- Of the text, as reading it whole takes ten times as long, and a slash may be escaped.
local function host_of(id)
  local delegation, seq = string.match(id, '^(.+)%-(%d+)$')
  local text = redis.call('HGET', hash_of(delegation), seq) or ''
  local address = string.match(text, '"url":"https?:\\?/\\?/([^"/\\?]*)') or ''
  return string.lower(address)
end

-- Returns what may be sent now: the first one of each host, then the second one of each.
local function in_turn(due)
  local hosts, waiting, left, found = {}, {}, {}, {}
  for _, id in ipairs(due) do
    local host = host_of(id)
    if not waiting[host] then
      hosts[#hosts + 1], waiting[host] = host, {}
      left[host] = arguments.of_host - (arguments.busy[host] or 0)
    end
    if #waiting[host] < left[host] then table.insert(waiting[host], id) end
  end
  for turn = 1, arguments.of_host do
    for _, host in ipairs(hosts) do
      if waiting[host][turn] and #found < arguments.at_most then
        found[#found + 1] = {id = waiting[host][turn], host = host}
      end
    end
  end
  return found
end

if operation == 'take' then
  local taken = {}
  local due = redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'LIMIT', 0, arguments.looked_at)
  local found = in_turn(due)
  if #found == 0 and #due == arguments.looked_at and arguments.at_most > 0 then
    for _, id in ipairs(due) do redis.call('ZADD', queue, now + arguments.pause_ms, id) end
  end
  for _, each in ipairs(found) do
    local id = each.id
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
      taken[#taken + 1] = {cjson.encode(kept), webhook, session, entry[2][2], each.host}
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

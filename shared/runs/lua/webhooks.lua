-- The queues of notifications that were not delivered, by the time at which they are due. What failed for good stays in
-- its queue, so that it is listed, until its record is gone.
-- KEYS: the queues of the kinds that the caller knows · Arguments: operation, queue_of (each kind's), record_head and
--   record_tail (a record's key around its id), and by operation:
--   take: leases what is due, so that no other worker sends the same try; at_most, lease_ms, of_host and of_caller (how
--     many a host and a named caller may have under way), busy and busy_callers (how many each has), looked_at and
--     pause_ms: where so many are due, those that these bounds hold back are due later, so that others are found. Callers
--     come in turn, and so do the hosts of each. Returns for each a list:
--     notification (with this try in its tries), webhook, session, event, host, caller
--   settle: a try ended; notification, gone (the receiver wants no more of this delegation), delay_ms (until the next try,
--     if there is one), metrics and counts. It does not count where it failed after another try had begun
--   again: all of a delegation are due now, as if never tried; delegation. Returns their number
local arguments = cjson.decode(ARGV[1])
local operation, DAY = arguments.operation, 24 * 3600 * 1000
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
  redis.call('ZADD', arguments.queue_of[kept.type], due, kept.id)
end

-- Of the text, as reading it whole takes ten times as long, and a slash may be escaped.
local function host_of(id)
  local delegation, seq = string.match(id, '^(.+)%-(%d+)$')
  local text = redis.call('HGET', hash_of(delegation), seq) or ''
  local address = string.match(text, '"url":"https?:\\?/\\?/([^"/\\?]*)') or ''
  return string.lower(address)
end

local function caller_of(id)
  local record = string.gsub(hash_of((string.match(id, '^(.+)%-%d+$'))), ':webhooks$', '')
  return redis.call('HGET', record, 'caller') or ''
end

-- Returns what is due by its caller, of each host the first one, then the second one of each; and the callers.
local function by_caller(due)
  local callers, queues, turns = {}, {}, {}
  for at, id in ipairs(due) do
    local host, caller = host_of(id), caller_of(id)
    if not queues[caller] then callers[#callers + 1], queues[caller] = caller, {} end
    local both = caller .. ' ' .. host
    turns[both] = (turns[both] or 0) + 1
    table.insert(queues[caller], {id = id, host = host, caller = caller, turn = turns[both], at = at})
  end
  for _, queue in pairs(queues) do
    table.sort(queue, function(one, other)
      if one.turn ~= other.turn then return one.turn < other.turn end
      return one.at < other.at
    end)
  end
  return queues, callers
end

-- Returns what may be sent now, and what the bounds hold back.
local function in_turn(due)
  local queues, callers = by_caller(due)
  local of_hosts, of_callers, next_of, found, held = arguments.busy, arguments.busy_callers, {}, {}, {}

  local function first_free(caller)
    local is_full = caller ~= '' and (of_callers[caller] or 0) >= arguments.of_caller
    for at = next_of[caller] or 1, #queues[caller] do
      local each = queues[caller][at]
      next_of[caller] = at + 1
      if not is_full and (of_hosts[each.host] or 0) < arguments.of_host then return each end
      held[#held + 1] = each.id
    end
  end

  local before
  repeat
    before = #found
    for _, caller in ipairs(callers) do
      local each = #found < arguments.at_most and first_free(caller)
      if each then
        found[#found + 1] = each
        of_hosts[each.host] = (of_hosts[each.host] or 0) + 1
        of_callers[caller] = (of_callers[caller] or 0) + 1
      end
    end
  until #found == before
  return found, held
end

if operation == 'take' then
  local taken, due, queue_with = {}, {}, {}
  for _, queue in ipairs(KEYS) do
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'LIMIT', 0, arguments.looked_at)) do
      due[#due + 1], queue_with[id] = id, queue
    end
  end
  local found, held = in_turn(due)
  if #due >= arguments.looked_at then
    for _, id in ipairs(held) do redis.call('ZADD', queue_with[id], now + arguments.pause_ms, id) end
  end
  for _, each in ipairs(found) do
    local id = each.id
    local kept, delegation, seq = read(id)
    local record = arguments.record_head .. delegation .. arguments.record_tail
    local entry = redis.call('XRANGE', record .. ':events', seq .. '-0', seq .. '-0')[1]
    if not kept or not entry then
      redis.call('ZREM', queue_with[id], id)
    elseif kept.state == 'failed' then
      redis.call('ZADD', queue_with[id], now + DAY, id)
    elseif redis.call('HEXISTS', hash_of(delegation), 'gone') == 1 then
      kept.state, kept.error = 'failed', 'not sent: the receiver had answered 410'
      write(kept, delegation, seq, now + DAY)
    else
      kept.tries, kept.leasedUntil = kept.tries + 1, now + arguments.lease_ms
      write(kept, delegation, seq, kept.leasedUntil)
      local webhook, session = unpack(redis.call('HMGET', record, 'webhook', 'session'))
      taken[#taken + 1] = {cjson.encode(kept), webhook, session, entry[2][2], each.host, each.caller}
    end
  end
  return taken
elseif operation == 'settle' then
  local outcome = cjson.decode(arguments.notification)
  local kept, delegation, seq = read(outcome.id)
  if not kept then
    redis.call('ZREM', arguments.queue_of[outcome.type], outcome.id)
  elseif kept.tries == outcome.tries or outcome.state == 'delivered' then
    if kept.leasedUntil then count(arguments.metrics, arguments.counts) end  -- else it was settled before
    write(outcome, delegation, seq, now + (arguments.delay_ms or DAY))
    if outcome.state == 'delivered' then redis.call('ZREM', arguments.queue_of[outcome.type], outcome.id) end
    if arguments.gone then redis.call('HSET', hash_of(delegation), 'gone', '1') end
  end
  return
end

local notifications, count = hash_of(arguments.delegation), 0
redis.call('HDEL', notifications, 'gone')
for _, seq in ipairs(redis.call('HKEYS', notifications)) do
  local kept = cjson.decode(redis.call('HGET', notifications, seq))
  if arguments.queue_of[kept.type] and (kept.leasedUntil or 0) <= now then  -- else it is being sent, or of a newer version
    kept.state, kept.tries, kept.nextTryAt = 'pending', 0, cjson.null
    write(kept, arguments.delegation, seq, now)
  end
  count = count + 1
end
return count

-- Asks for the end of a delegation. One that never ran ends here and now; a running one is notified on the channel. One
-- that waits for its next attempt is due at once: only a worker can report what it did so far. Where it waits in vain
-- for others, it ends only if it still does.
-- KEYS: leases, record, events, and the run's other keys
-- Arguments: id, index (its key), channel (of events), cancel_channel, seq (expected), event, result, status, in_vain,
--   now (ISO), retention_seconds, webhooks and notifications (for notify.lua)
-- Returns 'gone', 'finished', 'asked', 'cancelled', or 'again' where the record moved on meanwhile.
local arguments = cjson.decode(ARGV[1])
local leases, record, events = KEYS[1], KEYS[2], KEYS[3]
local status, seq, attempt, after = unpack(redis.call('HMGET', record, 'status', 'seq', 'attempt', 'after'))
if not status then return 'gone' end
if arguments.in_vain and not after then return 'finished' end
if status == 'running' or status == 'waiting' then
  redis.call('HSET', record, 'cancel', '1')
  redis.call('PUBLISH', arguments.cancel_channel, arguments.id)
  return 'asked'
end
if status ~= 'queued' then return 'finished' end
if attempt ~= '0' then
  redis.call('HSET', record, 'cancel', '1')
  redis.call('ZADD', leases, 0, arguments.id)
  return 'asked'
end
if tonumber(seq) ~= arguments.seq then return 'again' end
redis.call('XADD', events, (arguments.seq + 1) .. '-0', 'e', arguments.event)
redis.call('PUBLISH', arguments.channel .. ':' .. arguments.id, arguments.event)
redis.call('PUBLISH', arguments.channel, arguments.event)
redis.call('HSET', record, 'status', arguments.status, 'seq', arguments.seq + 1, 'result', arguments.result,
  'finished', arguments.now, 'cancel', '1')
notify(arguments.webhooks, arguments.id, record, arguments.notifications)
redis.call('ZREM', leases, arguments.id)
for i = 2, #KEYS do redis.call('EXPIRE', KEYS[i], arguments.retention_seconds) end
file(arguments.index, arguments.id, record, leases)
return 'cancelled'

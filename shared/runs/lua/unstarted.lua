-- Ends a delegation that never ran: its last events, result and retention in one step.
-- Arguments: id, keys (all of the delegation), index (its key), channel (of events), seq (of the event before), events,
--   status, result, now (ISO), retention_seconds, webhooks and notifications (for notify.lua), metrics and counts
--   (for count.lua), queue (for queue.lua)
local function add_events(arguments, record, stream, events)
  for at, event in ipairs(events) do
    redis.call('XADD', stream, (arguments.seq + at) .. '-0', 'e', event)
    redis.call('PUBLISH', arguments.channel .. ':' .. arguments.id, event)
    redis.call('PUBLISH', arguments.channel, event)
  end
  redis.call('HSET', record, 'seq', arguments.seq + #events)
end

local function end_unstarted(arguments, leases, record, events)
  add_events(arguments, record, events, arguments.events)
  redis.call('HSET', record, 'status', arguments.status, 'result', arguments.result, 'finished', arguments.now)
  notify(arguments.webhooks, arguments.id, record, arguments.notifications)
  count(arguments.metrics, arguments.counts)
  redis.call('ZREM', leases, arguments.id)
  dequeue(arguments, queue_owner(record), arguments.id)
  for _, key in ipairs(arguments.keys) do redis.call('EXPIRE', key, arguments.retention_seconds) end
  file(arguments.index, arguments.id, record, leases)
end

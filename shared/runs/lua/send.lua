-- Puts a message into the inbox of a delegation, once: the client sends a command again whose reply was lost. The worker
-- of a running one numbers its events, so it is notified and reports the arrival; of one without a worker the event is
-- written here. A request to wrap up ends a delegation that never ran; one that waits for its next attempt is due at
-- once: only a worker can report what it did so far.
-- KEYS: leases, record, events, and the run's other keys; the last one is the inbox
-- Arguments: those of end_unstarted, message_id, message, wraps_up, at_most (unread messages), event (the arrival),
--   message_channel, mark (an id of this moment: what was paused is not paused again by a stack that starts); once
--   (optional: an idempotency key; where it is taken nothing is sent, else it stands for this message) and once_seconds
-- Returns {'sent', id}, {'gone'}, {'ended'}, {'full'}, or {'again'} where the record moved on meanwhile.
local arguments = cjson.decode(ARGV[1])
local leases, record, events, inbox = KEYS[1], KEYS[2], KEYS[3], KEYS[#KEYS]
local status, seq, attempt, closed, wrap_up, read, announced = unpack(redis.call('HMGET', record, 'status', 'seq',
  'attempt', 'closed', 'wrap_up', 'read', 'announced'))
if not status then return {'gone'} end
if arguments.once and redis.call('EXISTS', arguments.once) == 1 then
  return {'sent', redis.call('HGET', arguments.once, 'message') or ''}
end
if wrap_up and arguments.wraps_up then return {'sent', wrap_up} end
for _, message in ipairs(redis.call('LRANGE', inbox, -2 * arguments.at_most, -1)) do
  if string.find(message, arguments.message_id, 1, true) then return {'sent', arguments.message_id} end
end
local runs = status == 'running' or status == 'waiting'
if closed or not runs and status ~= 'queued' then return {'ended'} end
local there = redis.call('LLEN', inbox)
if not arguments.wraps_up and there - (read or 0) >= arguments.at_most then return {'full'} end
if not runs and tonumber(seq) ~= arguments.seq then return {'again'} end

if arguments.once then
  redis.call('HSET', arguments.once, 'id', arguments.id, 'hash', 'message', 'message', arguments.message_id)
  redis.call('EXPIRE', arguments.once, arguments.once_seconds)
end
redis.call('RPUSH', inbox, arguments.message)
redis.call('HSET', record, 'messages', there + 1)
if arguments.wraps_up then redis.call('HSET', record, 'wrap_up', arguments.message_id) end
if runs then
  redis.call('PUBLISH', arguments.message_channel, arguments.id)
elseif arguments.wraps_up and attempt == '0' then
  end_unstarted(arguments, leases, record, events)
else
  if tonumber(announced or 0) == there then  -- else the next attempt reports all of them in order
    add_events(arguments, record, events, {arguments.event})
    redis.call('HSET', record, 'announced', there + 1)
  end
  if arguments.wraps_up then
    redis.call('HDEL', record, 'paused')
    redis.call('HSET', record, 'resumed', arguments.mark)
    redis.call('ZADD', leases, 0, arguments.id)
  end
end
return {'sent', arguments.message_id}

-- Asks for the end of a delegation. One that never ran ends here and now; a running one is notified on the channel. One
-- that waits for its next attempt is due at once: only a worker can report what it did so far. Where it waits in vain
-- for others, it ends only if it still does.
-- KEYS: leases, record, events, and the run's other keys
-- Arguments: those of end_unstarted, cancel_channel, in_vain
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
redis.call('HSET', record, 'cancel', '1')
end_unstarted(arguments, leases, record, events)
return 'cancelled'

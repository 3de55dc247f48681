-- A worker hands a running delegation back before its lease ends: queued again, due at once. No worker is lost.
-- KEYS: record, leases · Arguments: id, fence, claim_ms and, where it is known, elapsed_ms (how much of the run's time is
--   used); unread where it is as if the delegation had not been claimed, because the worker cannot read its record
-- Returns 'released', or 'cancelled' where it is to end and no worker has begun it, or 'fenced' where the fence is
-- another's.
local arguments = cjson.decode(ARGV[1])
local record, leases = KEYS[1], KEYS[2]
if redis.call('HGET', record, 'fence') ~= arguments.fence then return 'fenced' end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('HSET', record, 'status', 'queued', 'queued_at', now + arguments.claim_ms, 'fence', '', 'worker', '')
local cancelled = false
if arguments.unread then
  if redis.call('HINCRBY', record, 'attempt', -1) == 0 then
    redis.call('HDEL', record, 'started')
    cancelled = redis.call('HGET', record, 'cancel')
  end
else
  redis.call('HSET', record, 'ended', 'handed_over')
end
if redis.call('HINCRBY', record, 'tried', -1) < 0 then redis.call('HSET', record, 'tried', 0) end
if arguments.elapsed_ms then redis.call('HSET', record, 'elapsed_ms', arguments.elapsed_ms) end
redis.call('ZADD', leases, now + arguments.claim_ms, arguments.id)
return cancelled and 'cancelled' or 'released'

-- Goes on with a paused delegation: it is due at once, so that a janitor sends a ticket. One that is not paused yet,
-- because the workers of this stack are still starting, is not paused by them.
-- KEYS: record, leases · Arguments: id, mark (an id of this moment, for later stacks)
-- Returns 'gone', 'finished', or 'resumed', also for one that is not paused.
local arguments = cjson.decode(ARGV[1])
local record, leases = KEYS[1], KEYS[2]
local status, paused = unpack(redis.call('HMGET', record, 'status', 'paused'))
if not status then return 'gone' end
if status ~= 'queued' and status ~= 'running' and status ~= 'waiting' then return 'finished' end
redis.call('HSET', record, 'resumed', arguments.mark)
if paused then
  local clock = redis.call('TIME')
  redis.call('HSET', record, 'queued_at', clock[1] * 1000 + math.floor(clock[2] / 1000))
  redis.call('HDEL', record, 'paused')
  redis.call('ZADD', leases, 0, arguments.id)
end
return 'resumed'

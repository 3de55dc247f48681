-- A stack of one machine starts its workers: decides about what earlier ones left, which costs money only when asked for.
-- Delegations of a stack that lived as long as the commands that used it are paused, and by such a stack all others, too;
-- a stack that stays goes on with those of its own kind. What was resumed since stays as it is.
-- KEYS: leases. Arguments: before (the smallest id of this stack), temporary (whether this one lives as long as its
-- commands), record_head, record_tail (a record's key around its id), queue. Returns how many are paused now.
local arguments = cjson.decode(ARGV[1])
local leases, count = KEYS[1], 0
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
for _, id in ipairs(redis.call('ZRANGE', leases, 0, -1)) do
  local record = arguments.record_head .. id .. arguments.record_tail
  local status, resumed, cancel, temporary, paused = unpack(
    redis.call('HMGET', record, 'status', 'resumed', 'cancel', 'temporary', 'paused'))
  local unfinished = status == 'queued' or status == 'running' or status == 'waiting'
  if unfinished and not cancel and id < arguments.before and (resumed or '') < arguments.before then
    if arguments.temporary or temporary then
      if status ~= 'queued' then
        redis.call('HSET', record, 'status', 'queued', 'fence', '', 'worker', '', 'ended', 'lost')
      end
      redis.call('HSET', record, 'paused', '1')
      dequeue(arguments, queue_owner(record), id)
      redis.call('ZADD', leases, '+inf', id)
      count = count + 1
    elseif paused then
      redis.call('HDEL', record, 'paused')
      redis.call('HSET', record, 'queued_at', now)
      redis.call('ZADD', leases, now, id)
    end
  end
end
return count

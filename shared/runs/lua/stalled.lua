-- A worker process whose event loop is blocked is ended: its run is marked before that, and its lease ends after it.
-- KEYS: record, leases · Arguments: id, fence, ends_lease · Returns 'marked', or 'fenced' where the fence is another's.
local arguments = cjson.decode(ARGV[1])
local record, leases = KEYS[1], KEYS[2]
if redis.call('HGET', record, 'fence') ~= arguments.fence then return 'fenced' end
local stalled, attempt = unpack(redis.call('HMGET', record, 'stalled', 'attempt'))
if stalled ~= attempt then
  -- Workers of earlier versions write the first of them alone: their standstills count as losses.
  redis.call('HSET', record, 'stalled', attempt, 'stall_counted', attempt,
    'stalls', standstills(record) + 1, 'stalled_turn', turns_of(record))
end
if arguments.ends_lease then redis.call('ZADD', leases, 0, arguments.id) end
return 'marked'

-- A worker process whose event loop stood still was ended: its run is marked, and its lease ends now.
-- KEYS: record, leases · Arguments: id, fence · Returns 'marked', or 'fenced' where the fence is another's.
local arguments = cjson.decode(ARGV[1])
local record, leases = KEYS[1], KEYS[2]
if redis.call('HGET', record, 'fence') ~= arguments.fence then return 'fenced' end
redis.call('HSET', record, 'stalled', redis.call('HGET', record, 'attempt'))
redis.call('ZADD', leases, 0, arguments.id)
return 'marked'

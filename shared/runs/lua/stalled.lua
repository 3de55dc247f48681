-- A worker process whose event loop stood still was ended: its run is marked, and its lease ends now.
-- KEYS: record, leases · ARGV: id, fence · Returns 1, or 0 where the fence is another's.
if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'stalled', redis.call('HGET', KEYS[1], 'attempt'))
redis.call('ZADD', KEYS[2], 0, ARGV[1])
return 1

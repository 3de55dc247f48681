-- A worker hands a running delegation back before its lease ends: queued again, due at once. No worker is lost.
-- KEYS: record, leases · ARGV: id, fence, claim grace ms · Returns 1, or 0 where the fence is another's.
if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[2] then return 0 end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('HSET', KEYS[1], 'status', 'queued', 'fence', '', 'worker', '', 'ended', 'handed_over')
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[3]), ARGV[1])
return 1

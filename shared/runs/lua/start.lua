-- Lets a delegation start whose upstreams have ended as it requires: from now on it is one that no worker has claimed.
-- KEYS: record · Arguments: id, upstreams (what it reads of them), queue and weights (for queue.lua) · Returns 1, or 0 where
-- it does not wait, or not any more.
local arguments = cjson.decode(ARGV[1])
local status, after = unpack(redis.call('HMGET', KEYS[1], 'status', 'after'))
if status ~= 'queued' or not after then return 0 end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('HSET', KEYS[1], 'upstreams', arguments.upstreams, 'queued_at', now)
redis.call('HDEL', KEYS[1], 'after')
enqueue(arguments, KEYS[1], arguments.id)
return 1

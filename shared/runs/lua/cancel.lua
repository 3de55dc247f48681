-- Asks for the end of a delegation. One that never ran ends here and now; a running one is told through the channel. One
-- that waits for its next attempt is due at once: only a worker can say what it did so far.
-- KEYS: leases, record, events, and the run's other keys
-- ARGV: id, events channel, cancel channel, expected seq, event, result, now, retention s
-- Returns 'gone', 'finished', 'asked', 'cancelled', or 'again' where the record moved on meanwhile.
local held = redis.call('HMGET', KEYS[2], 'status', 'seq', 'attempt')
if not held[1] then return 'gone' end
if held[1] == 'running' or held[1] == 'waiting' then
  redis.call('HSET', KEYS[2], 'cancel', '1')
  redis.call('PUBLISH', ARGV[3], ARGV[1])
  return 'asked'
end
if held[1] ~= 'queued' then return 'finished' end
if held[3] ~= '0' then
  redis.call('HSET', KEYS[2], 'cancel', '1')
  redis.call('ZADD', KEYS[1], 0, ARGV[1])
  return 'asked'
end
if held[2] ~= ARGV[4] then return 'again' end
local seq = held[2] + 1
redis.call('XADD', KEYS[3], seq .. '-0', 'e', ARGV[5])
redis.call('PUBLISH', ARGV[2] .. ':' .. ARGV[1], ARGV[5])
redis.call('PUBLISH', ARGV[2], ARGV[5])
redis.call('HSET', KEYS[2], 'status', 'cancelled', 'seq', seq, 'result', ARGV[6], 'finished', ARGV[7], 'cancel', '1')
redis.call('ZREM', KEYS[1], ARGV[1])
for i = 2, #KEYS do redis.call('EXPIRE', KEYS[i], ARGV[8]) end
return 'cancelled'

-- Asks for the end of a delegation. A queued one ends here and now; a running one is told through the channel.
-- KEYS: record, events, leases, history · ARGV: id, events channel, cancel channel, expected seq, event, result, now, retention s
-- Returns 'gone', 'finished', 'asked', 'cancelled', or 'again' where the record moved on meanwhile.
local held = redis.call('HMGET', KEYS[1], 'status', 'seq')
if not held[1] then return 'gone' end
if held[1] == 'running' or held[1] == 'waiting' then
  redis.call('HSET', KEYS[1], 'cancel', '1')
  redis.call('PUBLISH', ARGV[3], ARGV[1])
  return 'asked'
end
if held[1] ~= 'queued' then return 'finished' end
if held[2] ~= ARGV[4] then return 'again' end
local seq = held[2] + 1
redis.call('XADD', KEYS[2], seq .. '-0', 'e', ARGV[5])
redis.call('PUBLISH', ARGV[2] .. ':' .. ARGV[1], ARGV[5])
redis.call('PUBLISH', ARGV[2], ARGV[5])
redis.call('HSET', KEYS[1], 'status', 'cancelled', 'seq', seq, 'result', ARGV[6], 'finished', ARGV[7], 'cancel', '1')
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[8])
redis.call('EXPIRE', KEYS[2], ARGV[8])
redis.call('EXPIRE', KEYS[4], ARGV[8])
return 'cancelled'

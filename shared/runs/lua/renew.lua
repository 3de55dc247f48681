-- Renews the leases a worker holds, in one step.
-- KEYS: leases, then the records · ARGV: lease ms, then id, fence for each record
-- Returns for each: 0 renewed (or finished by us meanwhile), 1 lost, 2 renewed and asked to cancel.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local answers = {}
for i = 2, #KEYS do
  local held = redis.call('HMGET', KEYS[i], 'fence', 'cancel', 'finisher')
  if held[1] ~= ARGV[2 * i - 1] then
    answers[i - 1] = held[3] == ARGV[2 * i - 1] and 0 or 1
  else
    redis.call('ZADD', KEYS[1], now + tonumber(ARGV[1]), ARGV[2 * i - 2])
    answers[i - 1] = held[2] and 2 or 0
  end
end
return answers

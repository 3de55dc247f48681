-- Renews the leases a worker holds, in one step.
-- KEYS: leases, then the records · Arguments: lease_ms, runs: id and fence for each record
-- Returns for each 'renewed' (also where it was finished by us meanwhile), 'fenced', or 'cancel': renewed, and asked to
-- stop.
local arguments = cjson.decode(ARGV[1])
local leases = KEYS[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local answers = {}
for at, run in ipairs(arguments.runs) do
  local fence, cancel, finisher = unpack(redis.call('HMGET', KEYS[at + 1], 'fence', 'cancel', 'finisher'))
  if fence ~= run.fence then
    answers[at] = finisher == run.fence and 'renewed' or 'fenced'
  else
    redis.call('ZADD', leases, now + arguments.lease_ms, run.id)
    answers[at] = cancel and 'cancel' or 'renewed'
  end
end
return answers

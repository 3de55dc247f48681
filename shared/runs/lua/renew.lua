-- Renews the leases a worker holds, in one step, also on a server without memory: it refuses a command that may need some
-- only as the first write of a script.
-- KEYS: leases, then the records · Arguments: lease_ms, runs: for each record id, fence and, where it is known, elapsed_ms
--   (how much of the run's time is used): if the worker is lost, the next attempt goes on from there
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
    redis.call('ZREM', leases, '')
    redis.call('ZADD', leases, now + arguments.lease_ms, run.id)
    if run.elapsed_ms then redis.call('HSET', KEYS[at + 1], 'elapsed_ms', run.elapsed_ms) end
    answers[at] = cancel and 'cancel' or 'renewed'
  end
end
return answers

-- The only writer of a run: all that it writes joins the record in one step, and only for the holder of the fence.
-- Writing the same again changes nothing (events by their number, history by its length), so a lost answer is retried.
-- KEYS: leases, record, events, history, ledger, children, artifacts
-- ARGV: id, fence, channel, retention s (0: the run goes on), history length before, number of events, of history
--       entries, of ledger calls and states, of field names and values, of artifacts and their contents; then seq,
--       event, ...; entries ...; call, state, ...; field, value, ...; artifact, content, ...
--       A call of '' empties the ledger: its turn is answered.
-- Returns 1, or 0 where the fence is another's.
if redis.call('HGET', KEYS[2], 'fence') ~= ARGV[2] then
  -- The answer to our own last write may have been lost: then the record says who finished it.
  return redis.call('HGET', KEYS[2], 'finisher') == ARGV[2] and tonumber(ARGV[4]) > 0 and 1 or 0
end
local last = tonumber(redis.call('HGET', KEYS[2], 'seq'))
local events, entries = tonumber(ARGV[6]), tonumber(ARGV[7])
local calls, fields, artifacts = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local at = 11
for _ = 1, events do
  local seq = tonumber(ARGV[at])
  if seq > last then
    redis.call('XADD', KEYS[3], seq .. '-0', 'e', ARGV[at + 1])
    redis.call('PUBLISH', ARGV[3] .. ':' .. ARGV[1], ARGV[at + 1])
    redis.call('PUBLISH', ARGV[3], ARGV[at + 1])
    last = seq
  end
  at = at + 2
end
redis.call('HSET', KEYS[2], 'seq', last)
if entries > 0 then
  local there = redis.call('LLEN', KEYS[4]) - tonumber(ARGV[5])
  for i = 1, entries do
    if i > there then redis.call('RPUSH', KEYS[4], ARGV[at + i - 1]) end
  end
  at = at + entries
end
for _ = 1, calls do
  if ARGV[at] == '' then
    redis.call('DEL', KEYS[5])
  else
    redis.call('HSET', KEYS[5], ARGV[at], ARGV[at + 1])
  end
  at = at + 2
end
for _ = 1, fields do
  redis.call('HSET', KEYS[2], ARGV[at], ARGV[at + 1])
  at = at + 2
end
for _ = 1, artifacts do
  redis.call('HSET', KEYS[7], ARGV[at], ARGV[at + 1])
  at = at + 2
end
local retention = tonumber(ARGV[4])
if retention > 0 then
  redis.call('HSET', KEYS[2], 'fence', '', 'finisher', ARGV[2])
  redis.call('ZREM', KEYS[1], ARGV[1])
  for i = 2, #KEYS do redis.call('EXPIRE', KEYS[i], retention) end
end
return 1

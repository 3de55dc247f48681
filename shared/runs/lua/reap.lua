-- Finds delegations whose deadline has passed: a running one whose worker fell silent is fenced off, counted as one that
-- lost its worker (unless that was blocked, which stalled.lua counts), and queued again; a queued one that no worker
-- claimed is named too, so that another ticket is sent. Both are in the queue then.
-- One that waits for others (after) is named when they have decided about it: all have succeeded, or one has not. Else
-- it is looked at again when one of them ends (file.lua), or after ten minutes.
-- KEYS: leases
-- Arguments: claim_ms, at_most, record_head and record_tail (a record's key around its id), metrics and lost (the field
--   that counts lost leases), queue and weights (for queue.lua)
-- Returns for each a JSON object: id, kind ('lapsed', 'unclaimed' or 'decided'), attempt, title, priority.
local LATER_MS = 600000
local arguments = cjson.decode(ARGV[1])
local leases = KEYS[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local found = {}

local function key_of(id)
  return arguments.record_head .. id .. arguments.record_tail
end

local function waits(after)
  local open = false
  for id in string.gmatch(after or '', '%S+') do
    local status = redis.call('HGET', key_of(id), 'status')
    if status == 'queued' or status == 'running' or status == 'waiting' then
      open = true
    elseif status ~= 'succeeded' then
      return false
    end
  end
  return open
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, arguments.at_most)) do
  local record = key_of(id)
  local status, attempt, title, priority, after, paused, stalled = unpack(
    redis.call('HMGET', record, 'status', 'attempt', 'title', 'priority', 'after', 'paused', 'stall_counted'))
  if status == 'queued' and after and (paused or waits(after)) then
    redis.call('ZADD', leases, paused and '+inf' or now + LATER_MS, id)
  elseif status == 'running' or status == 'waiting' or status == 'queued' then
    local kind = status ~= 'queued' and 'lapsed' or after and 'decided' or 'unclaimed'
    redis.call('HSET', record, 'status', 'queued', 'fence', '', 'worker', '')
    if kind == 'lapsed' then
      if stalled ~= attempt then redis.call('HINCRBY', record, 'lost', 1) end
      redis.call('HSET', record, 'ended', 'lost', 'queued_at', now)
      count(arguments.metrics, {[arguments.lost] = 1})
    end
    redis.call('ZADD', leases, now + arguments.claim_ms, id)
    if not after then enqueue(arguments, record, id) end
    found[#found + 1] = cjson.encode({
      id = id, kind = kind, attempt = tonumber(attempt), title = title or '', priority = tonumber(priority or 5)})
  else
    redis.call('ZREM', leases, id)
  end
end
return found

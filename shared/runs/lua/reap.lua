-- Finds delegations whose deadline has passed: a running one whose worker fell silent is fenced off, counted as one that
-- lost its worker, and queued again; a queued one that no worker claimed is named too, so that another ticket is sent.
-- KEYS: leases
-- Arguments: claim_ms, at_most, record_head and record_tail (a record's key around its id)
-- Returns for each a JSON object: id, kind ('lapsed' or 'unclaimed'), attempt, title, priority.
local arguments = cjson.decode(ARGV[1])
local leases = KEYS[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local found = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, arguments.at_most)) do
  local record = arguments.record_head .. id .. arguments.record_tail
  local status, attempt, title, priority = unpack(redis.call('HMGET', record, 'status', 'attempt', 'title', 'priority'))
  if status == 'running' or status == 'waiting' or status == 'queued' then
    local kind = status == 'queued' and 'unclaimed' or 'lapsed'
    redis.call('HSET', record, 'status', 'queued', 'fence', '', 'worker', '')
    if kind == 'lapsed' then
      redis.call('HINCRBY', record, 'lost', 1)
      redis.call('HSET', record, 'ended', 'lost')
    end
    redis.call('ZADD', leases, now + arguments.claim_ms, id)
    found[#found + 1] = cjson.encode({
      id = id, kind = kind, attempt = tonumber(attempt), title = title or '', priority = tonumber(priority or 5)})
  else
    redis.call('ZREM', leases, id)
  end
end
return found

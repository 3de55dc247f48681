-- Counts unfinished delegations for the metrics, some at a time.
-- Arguments: ids, record_head and record_tail (a record's key around its id)
-- Returns a JSON object: how many there are by state ('queued', 'after', 'paused', 'running', or 'waiting:' and for what),
-- and as oldest_ms for how long the first of the queued ones could have been claimed.
local arguments = cjson.decode(ARGV[1])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local found = {oldest_ms = 0}
for _, id in ipairs(arguments.ids) do
  local state, why, after, paused, queued_at = unpack(redis.call('HMGET',
    arguments.record_head .. id .. arguments.record_tail, 'status', 'why', 'after', 'paused', 'queued_at'))
  if state == 'waiting' then
    state = 'waiting:' .. (why or 'other')
  elseif state == 'queued' and (paused or after) then
    state = paused and 'paused' or 'after'
  elseif state == 'queued' then
    found.oldest_ms = math.max(found.oldest_ms, now - (queued_at or now))
  end
  if state then found[state] = (found[state] or 0) + 1 end
end
return cjson.encode(found)

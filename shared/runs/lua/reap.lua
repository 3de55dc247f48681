-- Finds delegations whose deadline has passed: a running one whose worker fell silent is fenced off, counted as one that
-- lost its worker, and queued again;
-- a queued one that nobody claimed is named too, so that another ticket is sent.
-- KEYS: leases · ARGV: claim grace ms, at most, record key's head, record key's tail
-- Returns id, kind ('lapsed' or 'unclaimed'), attempt, title, priority, seq for each.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local found = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2])) do
  local key = ARGV[3] .. id .. ARGV[4]
  local held = redis.call('HMGET', key, 'status', 'attempt', 'title', 'priority', 'seq')
  if held[1] == 'running' or held[1] == 'waiting' or held[1] == 'queued' then
    local kind = held[1] == 'queued' and 'unclaimed' or 'lapsed'
    redis.call('HSET', key, 'status', 'queued', 'fence', '', 'worker', '')
    if kind == 'lapsed' then
      redis.call('HINCRBY', key, 'lost', 1)
      redis.call('HSET', key, 'ended', 'lost')
    end
    redis.call('ZADD', KEYS[1], now + tonumber(ARGV[1]), id)
    for _, value in ipairs({id, kind, held[2], held[3], held[4], held[5]}) do found[#found + 1] = value end
  else
    redis.call('ZREM', KEYS[1], id)
  end
end
return found

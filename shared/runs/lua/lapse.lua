-- A worker process is gone: the leases of its runs end now instead of later.
-- KEYS: leases · ARGV: owner, record key's head, record key's tail · Returns how many.
local count = 0
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local held = redis.call('HMGET', ARGV[2] .. id .. ARGV[3], 'owner', 'status')
  if held[1] == ARGV[1] and (held[2] == 'running' or held[2] == 'waiting') then
    redis.call('ZADD', KEYS[1], 0, id)
    count = count + 1
  end
end
return count

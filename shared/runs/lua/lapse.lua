-- A worker process is gone: the leases of its runs end now instead of later.
-- KEYS: leases · Arguments: owner, record_head and record_tail (a record's key around its id) · Returns how many.
local arguments = cjson.decode(ARGV[1])
local leases, count = KEYS[1], 0
for _, id in ipairs(redis.call('ZRANGE', leases, 0, -1)) do
  local record = arguments.record_head .. id .. arguments.record_tail
  local owner, status = unpack(redis.call('HMGET', record, 'owner', 'status'))
  if owner == arguments.owner and (status == 'running' or status == 'waiting') then
    redis.call('ZADD', leases, 0, id)
    count = count + 1
  end
end
return count

-- Files what workers of an older version have ended, the newest first and some at a time.
-- KEYS: index, leases, bills · Arguments: before (a bound of ids), at_most, record_head and record_tail (a record's key
--   around its id) · Returns the id to go on before, or nothing where each id has either a lease or a bill.
local arguments = cjson.decode(ARGV[1])
local index, leases, bills = unpack(KEYS)
if redis.call('ZCARD', index) == redis.call('ZCARD', leases) + redis.call('HLEN', bills) then return end
local ids = redis.call('ZREVRANGEBYLEX', index, arguments.before, '-', 'LIMIT', 0, arguments.at_most)
for _, id in ipairs(ids) do
  if redis.call('HEXISTS', bills, id) == 0 and not redis.call('ZSCORE', leases, id) then
    file(index, id, arguments.record_head .. id .. arguments.record_tail, leases)
  end
end
if #ids > 0 then return ids[#ids] end
for _, id in ipairs(redis.call('HKEYS', bills)) do  -- an older version removes ids only from the index
  if not redis.call('ZSCORE', index, id) then redis.call('HDEL', bills, id) end
end

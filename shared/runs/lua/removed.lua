-- The files of delegations were removed from disk: those records that exist keep none now.
-- KEYS: records · Arguments: field (the name of the size on disk)
local arguments = cjson.decode(ARGV[1])
for _, record in ipairs(KEYS) do
  if redis.call('EXISTS', record) == 1 then redis.call('HSET', record, arguments.field, '0') end
end

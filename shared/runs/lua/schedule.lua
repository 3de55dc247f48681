-- Changes a schedule where it is still as its reader has seen it: of several services that do the same step, one does it.
-- KEYS: the schedule
-- Arguments: seen (fields with what they held, '' for none), set (fields and values; '' removes one), seconds (how long
--   the schedule is kept after its last change), metrics and counts
-- Returns 1 where it was changed, else 0.
local arguments = cjson.decode(ARGV[1])
for name, value in pairs(arguments.seen) do
  if (redis.call('HGET', KEYS[1], name) or '') ~= value then return 0 end
end
for name, value in pairs(arguments.set) do
  if value == '' then
    redis.call('HDEL', KEYS[1], name)
  else
    redis.call('HSET', KEYS[1], name, value)
  end
end
redis.call('EXPIRE', KEYS[1], arguments.seconds)
count(arguments.metrics, arguments.counts)
return 1

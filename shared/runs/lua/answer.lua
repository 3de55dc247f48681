-- Answers a permission request, once: the first answer counts. Equal answers are two, unless they have the same sending:
-- the client sends a command again whose reply was lost.
-- KEYS: permissions, pending permissions, grants of the root of the run tree, record of the root
-- Arguments: id (of the request), answer, sending (its id), expires_ms, ends (whether this answer is the end of its
--   time), grants (what the answer permits from then on), channel
-- Returns {'answered'}, {'before', answer} where it has another answer, {'expired'} where its time is over, or {'closed'}
-- where its run waits for it no more.
local arguments = cjson.decode(ARGV[1])
local permissions, pending, grants, root = unpack(KEYS)
local name = arguments.id .. ':answer'
local sending = arguments.id .. ':sending'
local before, sent = unpack(redis.call('HMGET', permissions, name, sending))
if before and sent == arguments.sending then return {'answered'} end
if before then return {'before', before} end
if redis.call('HEXISTS', pending, arguments.id) == 0 then return {'closed'} end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
if not arguments.ends and now >= arguments.expires_ms then return {'expired'} end
redis.call('HSET', permissions, name, arguments.answer, sending, arguments.sending)
redis.call('HDEL', pending, arguments.id)
for _, grant in ipairs(arguments.grants) do redis.call('HSETNX', grants, grant, arguments.answer) end
local kept = redis.call('TTL', root)
if kept > 0 and #arguments.grants > 0 then redis.call('EXPIRE', grants, kept) end
redis.call('PUBLISH', arguments.channel, arguments.id)
return {'answered'}

-- A prefix of prompts in the prompt cache of a model's endpoint: the first delegation that sends it is its writer, and
-- the others wait until its reply has begun, because only then can the endpoint read the prefix from its cache.
-- KEYS: prefix · Arguments: operation, token (of one model call), and by operation:
--   ask: whether a request may be sent now; lease_ms (how long a writer counts as alive)
--   renew: the writer still waits for its reply; lease_ms
--   written: a reply has begun, to a request of any call; kept_ms (how long the endpoint keeps the prefix from now on)
--   left: the writer ended without a reply
-- Returns a list of one: 'written', 'ahead' (this call is the writer) or 'wait' (ask again).
local arguments = cjson.decode(ARGV[1])
local prefix = KEYS[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local writer, alive = unpack(redis.call('HMGET', prefix, 'writer', 'alive'))
local writes = writer == arguments.token

if arguments.operation == 'written' then
  redis.call('HSET', prefix, 'writer', '', 'alive', 0)
  redis.call('PEXPIRE', prefix, arguments.kept_ms)
elseif arguments.operation == 'left' then
  if writes then redis.call('DEL', prefix) end
elseif arguments.operation == 'ask' and writer == '' then
  return {'written'}
elseif writes or (arguments.operation == 'ask' and (not writer or now >= tonumber(alive))) then
  redis.call('HSET', prefix, 'writer', arguments.token, 'alive', now + arguments.lease_ms)
  redis.call('PEXPIRE', prefix, arguments.lease_ms * 10)
  return {'ahead'}
end
return {'wait'}

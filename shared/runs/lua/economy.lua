-- The turns of economy runs on their way through message batches. Creating a batch cannot be repeated safely, so each step
-- is noted before the next one begins, and a process that takes over finds what is in doubt.
-- A turn (a hash) is queued, then sending (a batch with it is being created), then sent, then done (it has its result).
-- KEYS: state, queue (of one endpoint). state has "sending:<send>" and "batch:<id>", each with the time and the names of the
--   turns, "seen:<id>" with the time of a batch that was read, took with the seconds of the last ones, and leader with
--   leads_until. A name begins with the delegation's id.
-- Arguments: operation, record_head and record_tail (a record's key around its id), turn_head (of a turn's key), keep_ms
--   (how long what is forgotten stays), and by operation:
--   place: a run asks for a reply; id, fence, name, key (what identifies the request in any attempt), messages (how many it
--     has), tokens (an estimate), again (the name of the try that failed, or ''); ARGV[2] is the request.
--     Returns {'fenced'}, or {state, name, tries, left}: left is the number of tokens of another turn that is under way.
--   withdraw: a run needs no reply any more; id. Returns {state, name, tokens, result}, of what was there.
--   lead: token, lease_ms. Returns {1} for the process that creates and reads batches, until it ends with release: token.
--   take: send, most (turns), most_bytes, wait_ms (how long the first turn may wait). Returns names and requests in turn.
--   created: send, batch · returned: send (no batch was created)
--   answer: name; ARGV[2] is the result · ended: batch, took
local arguments = cjson.decode(ARGV[1])
local state, queue = unpack(KEYS)
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local operation = arguments.operation

local function id_of(name) return string.sub(name, 1, 30) end
local function turn_of(name) return arguments.turn_head .. id_of(name) end
local function record_of(name) return arguments.record_head .. id_of(name) .. arguments.record_tail end
local function is_at(name, where)
  local own, at = unpack(redis.call('HMGET', turn_of(name), 'name', 'state'))
  return own == name and at == where
end

local function place()
  local turn = arguments.turn_head .. arguments.id
  if redis.call('HGET', record_of(arguments.id), 'fence') ~= arguments.fence then return {'fenced'} end
  local name, key, at, tries, tokens = unpack(redis.call('HMGET', turn, 'name', 'key', 'state', 'tries', 'tokens'))
  local same = key == arguments.key
  if same and name ~= arguments.again then return {at, name, tries, '0'} end
  local left = '0'
  if name and at == 'queued' then redis.call('ZREM', queue, name) end
  if not same and (at == 'sending' or at == 'sent') then left = tokens end
  tries = same and tries + 1 or 1
  redis.call('DEL', turn)
  redis.call('HSET', turn, 'name', arguments.name, 'key', arguments.key, 'state', 'queued', 'tries', tries,
    'messages', arguments.messages, 'tokens', arguments.tokens, 'size', #ARGV[2], 'request', ARGV[2])
  redis.call('PEXPIRE', turn, arguments.keep_ms)
  redis.call('ZADD', queue, now, arguments.name)
  return {'queued', arguments.name, tostring(tries), left}
end

local function withdraw()
  local turn = arguments.turn_head .. arguments.id
  local name, at, tokens, messages, result = unpack(
    redis.call('HMGET', turn, 'name', 'state', 'tokens', 'messages', 'result'))
  if not name then return {'none'} end
  if at == 'queued' then redis.call('ZREM', queue, name) end
  redis.call('DEL', turn)
  return {at, name, tokens, messages, result or ''}
end

-- Whether the run of a queued turn still waits for it; what it left behind goes.
local function is_wanted(name)
  local status, cancel = unpack(redis.call('HMGET', record_of(name), 'status', 'cancel'))
  local unfinished = status == 'queued' or status == 'running' or status == 'waiting'
  if unfinished and not cancel and is_at(name, 'queued') then return true end
  redis.call('ZREM', queue, name)
  if is_at(name, 'queued') then redis.call('DEL', turn_of(name)) end
  return false
end

local function take()
  local names, answer, bytes = {}, {}, 0
  local all = redis.call('ZRANGE', queue, 0, -1, 'WITHSCORES')
  local due = #all / 2 >= arguments.most or (#all > 0 and tonumber(all[2]) <= now - arguments.wait_ms)
  if not due then return {} end
  for at = 1, #all, 2 do
    local name = all[at]
    if #names < arguments.most and is_wanted(name) then
      bytes = bytes + redis.call('HGET', turn_of(name), 'size')
      if #names > 0 and bytes > arguments.most_bytes then break end
      names[#names + 1] = name
    end
  end
  if #names == 0 then return {} end
  redis.call('HSET', state, 'sending:' .. arguments.send, cjson.encode({since = now, names = names}))
  redis.call('PEXPIRE', state, arguments.keep_ms)
  for _, name in ipairs(names) do
    redis.call('ZREM', queue, name)
    redis.call('HSET', turn_of(name), 'state', 'sending')
    answer[#answer + 1] = name
    answer[#answer + 1] = redis.call('HGET', turn_of(name), 'request')
  end
  return answer
end

local function created()
  local field = 'sending:' .. arguments.send
  local sent = redis.call('HGET', state, field)
  if not sent then return {0} end
  redis.call('HDEL', state, field)
  redis.call('HSET', state, 'batch:' .. arguments.batch, sent)
  for _, name in ipairs(cjson.decode(sent).names) do
    if is_at(name, 'sending') then
      redis.call('HSET', turn_of(name), 'state', 'sent', 'batch', arguments.batch)
      redis.call('HDEL', turn_of(name), 'request')
      redis.call('PEXPIRE', turn_of(name), arguments.keep_ms)
    end
  end
  return {1}
end

local function returned()
  local field = 'sending:' .. arguments.send
  local sent = redis.call('HGET', state, field)
  if not sent then return {0} end
  redis.call('HDEL', state, field)
  for _, name in ipairs(cjson.decode(sent).names) do
    if is_at(name, 'sending') then
      redis.call('HSET', turn_of(name), 'state', 'queued')
      redis.call('ZADD', queue, 0, name)  -- it has waited long enough
    end
  end
  return {1}
end

local function answer()
  local name = arguments.name
  if not (is_at(name, 'sent') or is_at(name, 'sending')) then return {0} end
  redis.call('HSET', turn_of(name), 'state', 'done', 'result', ARGV[2])
  redis.call('HDEL', turn_of(name), 'request')
  redis.call('PEXPIRE', turn_of(name), arguments.keep_ms)
  return {1}
end

if operation == 'place' then return place() end
if operation == 'withdraw' then return withdraw() end
if operation == 'lead' then
  local leader, leads_until = unpack(redis.call('HMGET', state, 'leader', 'leads_until'))
  if leader and leader ~= arguments.token and now < tonumber(leads_until) then return {0} end
  redis.call('HSET', state, 'leader', arguments.token, 'leads_until', now + arguments.lease_ms)
  redis.call('PEXPIRE', state, arguments.keep_ms)
  return {1}
end
if operation == 'release' then
  if redis.call('HGET', state, 'leader') == arguments.token then redis.call('HDEL', state, 'leader', 'leads_until') end
  return {1}
end
if operation == 'take' then return take() end
if operation == 'created' then return created() end
if operation == 'returned' then return returned() end
if operation == 'answer' then return answer() end
if operation == 'ended' then
  redis.call('HDEL', state, 'batch:' .. arguments.batch)
  for _, field in ipairs(redis.call('HKEYS', state)) do
    if string.sub(field, 1, 5) == 'seen:' and tonumber(redis.call('HGET', state, field)) < now - arguments.keep_ms / 3 then
      redis.call('HDEL', state, field)
    end
  end
  redis.call('HSET', state, 'seen:' .. arguments.batch, now)
  if arguments.took then
    local took = cjson.decode(redis.call('HGET', state, 'took') or '[]')
    table.insert(took, 1, arguments.took)
    while #took > arguments.most_took do table.remove(took) end
    redis.call('HSET', state, 'took', cjson.encode(took))
    redis.call('PEXPIRE', state, arguments.keep_ms)
  end
  return {1}
end
return redis.error_reply('unknown operation')

-- A part of other scripts. Files a finished delegation: its bill, and its id in sets for its status, its session, its
-- owner and each of its labels, so that lists and costs need not read its record. Each key lives as long as the last
-- record in it. What waits for its end is due from now on (reap.lua).
local AMOUNTS = 'inputTokens outputTokens cacheReadTokens cacheWriteTokens cacheWrite1hTokens costUsd cacheSavedUsd batchTokens'

local function file(index, id, record, leases)
  local dependants = record .. ':dependants'
  for _, waits in ipairs(redis.call('SMEMBERS', dependants)) do redis.call('ZADD', leases, 'XX', 0, waits) end
  redis.call('DEL', dependants)
  local status, created, model, session, labels, spent, owner = unpack(redis.call('HMGET', record,
    'status', 'created', 'model', 'session', 'labels', 'spent', 'caller'))
  if not status then return redis.call('ZREM', index, id) end
  local left, names = redis.call('TTL', record), {'bills', status}
  session, labels = session or '', labels or '{}'
  local bill = {redis.call('TIME')[1] + left, cjson.encode(string.sub(created, 1, 10)), cjson.encode(model or ''),
    cjson.encode(session), labels}
  for name in string.gmatch(AMOUNTS, '%w+') do  -- as they are written: numbers of Lua have fewer digits
    bill[#bill + 1] = string.match(spent or '', '"' .. name .. '":([^,}]+)') or '0'
  end
  if session ~= '' then names[#names + 1] = 'session:' .. session end
  if owner then names[#names + 1] = 'owner:' .. owner end
  for name, value in pairs(cjson.decode(labels)) do names[#names + 1] = 'label:' .. name .. ':' .. value end
  redis.call('HSET', index .. ':bills', id, '[' .. table.concat(bill, ',') .. ']')
  for at, name in ipairs(names) do
    local key = index .. ':' .. name
    if at > 1 then redis.call('ZADD', key, 0, id) end
    if redis.call('TTL', key) <= left then redis.call('EXPIRE', key, left + 1) end
  end
end


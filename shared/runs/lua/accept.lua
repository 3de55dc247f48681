-- Accepts delegations, all or none: record, index, claim deadline and run_queued in one step.
-- KEYS: index, leases, then for each: record, events, idempotency key, the parent's children ('' where there is none)
-- ARGV: claim grace ms, idempotency ttl s, the fence under which their parents must run ('' asks for none), then each:
--       id, idempotency hash, first event, channel, number of fields, field, value, ...
-- Returns for each: '' (accepted) or the id that the idempotency key already stands for; {-1, index} for a reused key,
-- {-2, index} for one whose delegation is gone: doing it again is not what the key was sent for; {-3, index} where the
-- parent's fence is another's. How deep a delegation is nested is written here and nowhere else, so nobody can lie.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local answers, seen, at = {}, {}, 4
local count = (#KEYS - 2) / 4
for i = 1, count do
  local key, family = KEYS[4 * i + 1], KEYS[4 * i + 2]
  answers[i] = ''
  if ARGV[3] ~= '' and redis.call('HGET', (string.gsub(family, ':children$', '')), 'fence') ~= ARGV[3] then
    return {-3, i - 1}
  end
  if key ~= '' then
    local held = redis.call('HMGET', key, 'id', 'hash')
    local twin = seen[key]
    if twin then  -- the same key twice in one batch
      if twin[2] ~= ARGV[at + 1] then return {-1, i - 1} end
      answers[i] = twin[1]
    elseif held[1] then
      if held[2] ~= ARGV[at + 1] then return {-1, i - 1} end
      local record = string.gsub(KEYS[4 * i - 1], ARGV[at], held[1])
      if redis.call('EXISTS', record) == 0 then return {-2, i - 1} end
      answers[i] = held[1]
    else
      seen[key] = {ARGV[at], ARGV[at + 1]}
    end
  end
  at = at + 5 + 2 * tonumber(ARGV[at + 4])
end
at = 4
for i = 1, count do
  local record, events, key, family = KEYS[4 * i - 1], KEYS[4 * i], KEYS[4 * i + 1], KEYS[4 * i + 2]
  local id, fields = ARGV[at], tonumber(ARGV[at + 4])
  if answers[i] == '' and redis.call('EXISTS', record) == 0 then
    local values = {}
    for j = 1, 2 * fields do values[j] = ARGV[at + 4 + j] end
    redis.call('HSET', record, 'status', 'queued', 'attempt', 0, 'seq', 1, 'fence', '', unpack(values))
    redis.call('XADD', events, '1-0', 'e', ARGV[at + 2])
    redis.call('PUBLISH', ARGV[at + 3] .. ':' .. id, ARGV[at + 2])
    redis.call('PUBLISH', ARGV[at + 3], ARGV[at + 2])
    redis.call('ZADD', KEYS[1], 0, id)
    redis.call('ZADD', KEYS[2], now + tonumber(ARGV[1]), id)
    if family ~= '' then
      local parent = string.gsub(family, ':children$', '')
      redis.call('HSET', record, 'depth', (tonumber(redis.call('HGET', parent, 'depth') or '') or 0) + 1)
      -- A parent that has ended already has given its keys an end; one that is gone gets none.
      local kept = redis.call('TTL', parent)
      if kept ~= -2 then redis.call('SADD', family, id) end
      if kept > 0 then redis.call('EXPIRE', family, kept) end
    end
    if key ~= '' then
      redis.call('HSET', key, 'id', id, 'hash', ARGV[at + 1])
      redis.call('EXPIRE', key, ARGV[2])
    end
  end
  at = at + 5 + 2 * fields
end
return answers

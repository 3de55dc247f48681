-- Accepts delegations, all or none: record, index, claim deadline, run_queued and a place in the queue in one step. One
-- that is only there so that its webhook is notified ends in the same step: no worker ever finds it.
-- KEYS: index, leases, then for each: record, events, idempotency key, the parent's children (the index where there is none)
-- Arguments: claim_ms, idempotency_seconds, channel, fence (the one under which their parents must run; '' asks for
--   none), confined (whether parents of another owner do not exist; else their children belong to that owner), metrics
--   and accepted (the field that counts them), starts (whether they go into the queue), queue and weights (for queue.lua),
--   delegations: for each id, hash (of its request), event (the first one),
--   fields (of the record), ended (arguments of end_unstarted for one that ends at once)
-- Returns {'accepted', id or '', ...}: for each '' or the id that its idempotency key already stands for. Or, and then
-- nothing is written, a code and the index of the delegation: 'key_reused' (with another request), 'record_gone' (the
-- key stands for a delegation that was removed: doing it again is not what the key was sent for), 'fenced' (the parent
-- runs under another fence).
-- How deep a delegation is nested is written here and nowhere else, so no caller can set it; and of one that its
-- parent's run submits itself (under a fence) the ids from the root of the run tree to the parent.
local arguments = cjson.decode(ARGV[1])
local index, leases = KEYS[1], KEYS[2]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local held_by, seen, accepted = {}, {}, 0

local function keys_of(at)
  return KEYS[4 * at - 1], KEYS[4 * at], KEYS[4 * at + 1], KEYS[4 * at + 2]
end

local function parent_of(children)
  return (string.gsub(children, ':children$', ''))
end

for at, new in ipairs(arguments.delegations) do
  local record, _, key, children = keys_of(at)
  held_by[at] = ''
  local is_under = children ~= index and redis.call('HGET', parent_of(children), 'fence') == arguments.fence
  if arguments.fence ~= '' and not is_under then
    return {'fenced', at - 1}
  end
  if key ~= index then
    local held = redis.call('HMGET', key, 'id', 'hash')
    local twin = seen[key]
    if twin then  -- the same key twice in one batch
      if twin.hash ~= new.hash then return {'key_reused', at - 1} end
      held_by[at] = twin.id
    elseif held[1] then
      if held[2] ~= new.hash then return {'key_reused', at - 1} end
      if redis.call('EXISTS', (string.gsub(record, new.id, held[1]))) == 0 then return {'record_gone', at - 1} end
      held_by[at] = held[1]
    else
      seen[key] = new
    end
  end
end

for at, new in ipairs(arguments.delegations) do
  local record, events, key, children = keys_of(at)
  if held_by[at] == '' and redis.call('EXISTS', record) == 0 then
    redis.call('HSET', record, 'status', 'queued', 'queued_at', now, 'attempt', 0, 'seq', 1, 'fence', '')
    accepted = accepted + 1
    for name, value in pairs(new.fields) do redis.call('HSET', record, name, value) end
    redis.call('XADD', events, '1-0', 'e', new.event)
    redis.call('PUBLISH', arguments.channel .. ':' .. new.id, new.event)
    redis.call('PUBLISH', arguments.channel, new.event)
    redis.call('ZADD', index, 0, new.id)
    -- Of one with upstreams a janitor decides: it is due at once, whether they have ended already or not.
    redis.call('ZADD', leases, new.fields.after and 0 or now + arguments.claim_ms, new.id)
    for id in string.gmatch(new.fields.after or '', '%S+') do
      local upstream = string.gsub(record, new.id, id)
      if redis.call('TTL', upstream) == -1 then redis.call('SADD', upstream .. ':dependants', new.id) end
    end
    local parent = children ~= index and parent_of(children)
    local owner = parent and redis.call('HGET', parent, 'caller') or nil
    if parent and not (arguments.confined and owner ~= new.fields.caller) then
      if owner then redis.call('HSET', record, 'caller', owner) end
      redis.call('HSET', record, 'share', queue_owner(parent))
      redis.call('HSET', record, 'depth', (tonumber(redis.call('HGET', parent, 'depth') or '') or 0) + 1)
      if arguments.fence ~= '' then
        local id = string.match(parent, '{(.+)}')
        local above = redis.call('HGET', parent, 'path')
        redis.call('HSET', record, 'path', above and (above .. ' ' .. id) or id)
      end
      -- A parent that has ended already has given its keys an end; one that is gone gets none.
      local kept = redis.call('TTL', parent)
      if kept ~= -2 then redis.call('SADD', children, new.id) end
      if kept > 0 then redis.call('EXPIRE', children, kept) end
    end
    if arguments.starts and not new.fields.after then enqueue(arguments, record, new.id) end
    if key ~= index then
      redis.call('HSET', key, 'id', new.id, 'hash', new.hash)
      redis.call('EXPIRE', key, arguments.idempotency_seconds)
    end
    if new.ended then end_unstarted(new.ended, leases, record, events) end
  end
end
if accepted > 0 then count(arguments.metrics, {[arguments.accepted] = accepted}) end
return {'accepted', unpack(held_by)}

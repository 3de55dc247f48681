-- The only writer of a run: all that it writes joins the record in one step, and only for the holder of the fence.
-- Writes are numbered under a fence, and each is applied once and after the one before it. So a lost answer is retried.
-- KEYS: leases, pending permissions, record, events, history, ledger, children, artifacts, permissions, grants, and the
--   run's other keys
-- Arguments: id, index (its key), fence, number (of this write, from 1), channel, retention_seconds (0: the run goes on),
--   retry_ms (only where it is done again from the start: the next claim is due after that time, and history, ledger and
--   kit are dropped), webhooks and notifications (for notify.lua), metrics, counts (fields and amounts) and spent (for
--   add_spent, where that is among the fields), and how many values of each kind follow in ARGV, as they are and in this
--   order: events (seq, event, and how it is stored, '': as it is), history (entry), ledger (call, state; a call of ''
--   empties the ledger: its turn is answered), fields (name, value), artifacts (name, content), permissions (name, value;
--   a name without a colon is a request's id, and it is pending from then on, until its name with :withdrawn follows),
--   path (of the run, for these)
-- Returns 'written', or instead of it how many messages were sent to the run, if any; or 'fenced' where the fence is
-- another's, or where earlier writes of this run are gone.
local arguments = cjson.decode(ARGV[1])
local leases, pending, record, events, history, ledger, _, artifacts, permissions = unpack(KEYS)
local held, finisher, seq, messages, write = unpack(redis.call('HMGET', record, 'fence', 'finisher', 'seq', 'messages',
  'write'))
local ends, retry_ms = arguments.retention_seconds > 0, arguments.retry_ms
if held ~= arguments.fence then
  -- The answer to our own last write may have been lost: then the record has who finished it.
  return (ends or retry_ms) and finisher == arguments.fence and 'written' or 'fenced'
end

local at = 1
local function following()
  at = at + 1
  return ARGV[at]
end

local writer, number = string.match(write or '', '^(.*) (%d+)$')
local written = writer == held and tonumber(number) or 0
if arguments.number <= written then return messages or 'written' end  -- the answer to it may have been lost
if arguments.number > written + 1 then
  -- Redis has an older state than this run has written: it was restored, or a replica that lagged took over. The run
  -- stops, and the next attempt settles what is in doubt with the marks on the disk.
  redis.call('ZADD', leases, 0, arguments.id)
  return 'fenced'
end
for _ = 1, arguments.events do
  local event, stored
  seq, event, stored = following(), following(), following()
  redis.call('XADD', events, seq .. '-0', 'e', stored == '' and event or stored)
  redis.call('PUBLISH', arguments.channel .. ':' .. arguments.id, event)
  redis.call('PUBLISH', arguments.channel, event)
end
notify(arguments.webhooks, arguments.id, record, arguments.notifications)
for _ = 1, arguments.history do redis.call('RPUSH', history, following()) end
for _ = 1, arguments.ledger do
  local call, state = following(), following()
  if call == '' then redis.call('DEL', ledger) else redis.call('HSET', ledger, call, state) end
end
if arguments.spent then
  local spent = redis.call('HGET', record, 'spent')
  for name = at + 1, at + 2 * arguments.fields, 2 do
    if ARGV[name] == 'spent' then add_spent(arguments.counts, arguments.spent, spent, ARGV[name + 1]) end
  end
end
count(arguments.metrics, arguments.counts)
local stood = retry_ms and standstills(record)  -- by the turns of the try that has failed
redis.call('HSET', record, 'seq', seq, 'write', held .. ' ' .. arguments.number,
  unpack(ARGV, at + 1, at + 2 * arguments.fields))
at = at + 2 * arguments.fields
for _ = 1, arguments.artifacts do redis.call('HSET', artifacts, following(), following()) end
for _ = 1, arguments.permissions do
  local name, value = following(), following()
  local new, withdrawn = redis.call('HSETNX', permissions, name, value) == 1, string.match(name, '^(.+):withdrawn$')
  if withdrawn then
    redis.call('HDEL', pending, withdrawn)
  elseif not string.find(name, ':', 1, true) then
    local again = redis.call('HDEL', permissions, name .. ':withdrawn') == 1
      and redis.call('HEXISTS', permissions, name .. ':answer') == 0
    if new or again then redis.call('HSET', pending, name, arguments.path) end
  end
end
if ends or retry_ms then
  for _, name in ipairs(redis.call('HKEYS', permissions)) do redis.call('HDEL', pending, name) end
end
if ends then
  redis.call('HSET', record, 'fence', '', 'finisher', arguments.fence)
  redis.call('ZREM', leases, arguments.id)
  for i = 3, #KEYS do redis.call('EXPIRE', KEYS[i], arguments.retention_seconds) end
  file(arguments.index, arguments.id, record, leases)
end
if retry_ms then
  local clock = redis.call('TIME')
  local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
  local attempt, cancel = unpack(redis.call('HMGET', record, 'attempt', 'cancel'))
  redis.call('DEL', history, ledger)
  redis.call('HDEL', record, 'tools', 'stalled', 'file_turns', 'trust', 'elapsed_ms', 'output', 'read',
    'starts', 'starter', 'start_due', 'start_owner', 'lost_starts')
  redis.call('HINCRBY', record, 'retries', 1)
  if stood > 0 then  -- from 2 on it begins again in a process of its own
    redis.call('HSET', record, 'stalls', math.min(stood, 2), 'stalled_turn', turns_of(record))
  else
    redis.call('HDEL', record, 'stalls', 'stalled_turn')
  end
  redis.call('HSET', record, 'status', 'queued', 'queued_at', now + retry_ms, 'fence', '', 'worker', '',
    'finisher', arguments.fence, 'ended', 'retried', 'retried_after', attempt, 'lost', 0)
  redis.call('ZADD', leases, cancel and 0 or now + retry_ms, arguments.id)
end
return messages or 'written'

-- One worker takes a queued delegation: the fence token is 'attempt:uuid', so that no number is ever handed out twice.
-- With a ticket it is the next one of the queue (queue.lua), whichever the ticket names: there is a ticket for each run in
-- the queue. The one that it names is taken where an older version has sent the ticket: that puts nothing into the queue.
-- KEYS: record, leases, presence (the workers' processes that are there)
-- Arguments: id, is_ticket (whether it is that of a ticket), uuid, worker, owner (the worker's process), lease_ms, now
--   (ISO), alone_after (the number of its workers' standstills after which a run gets a process of its own), is_alone
--   (whether this is such a process), start_ms (the time that such a process has until it claims the run), most_starts
--   (how many may end before they do), most_lost_starts (how many more may end because their worker's process did), fields
--   (those of the record to return), record_head and record_tail (a record's key around its id), queue and weights (for
--   queue.lua)
-- Returns a verdict ('claimed', 'alone', 'held', 'finished' or 'gone') and, of what is to be carried out, names and values:
-- id, and of a claimed run fence, attempt, stalls and those of the fields that are set. lost counts the workers that were
-- lost in a row, ended is how the attempt before ended (lost, handed_over, retried), starts counts the processes of its own
-- that were started in a row and have not claimed it. Older versions lose what they cannot read, and do not count in tried
-- how many attempts in a row have begun: a loss that is not among these is not the run's fault. fence_before is the fence
-- of the attempt before: a failover of Redis may have lost the claim of another one with the same number.
local arguments = cjson.decode(ARGV[1])
local named, leases, presence = KEYS[1], KEYS[2], KEYS[3]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function claimed(id, record, fence, attempt)
  local answer = {'claimed', 'id', id, 'fence', fence, 'attempt', attempt}
  local values = redis.call('HMGET', record, unpack(arguments.fields))
  for at, name in ipairs(arguments.fields) do
    if values[at] then
      answer[#answer + 1] = name
      answer[#answer + 1] = values[at]
    end
  end
  answer[#answer + 1] = 'stalls'
  answer[#answer + 1] = standstills(record)
  return answer
end

-- Whether the worker's process that made the last start has ended: then the start is not the run's fault.
local function was_lost(record)
  local owner = redis.call('HGET', record, 'start_owner') or ''
  if owner == '' or redis.call('ZSCORE', presence, owner) then return false end
  return redis.call('HINCRBY', record, 'lost_starts', 1) <= arguments.most_lost_starts
end

local function claim(id, record)
  local status, held, attempt = unpack(redis.call('HMGET', record, 'status', 'fence', 'attempt'))
  if not status then return {'gone'} end
  if status == 'running' and held == attempt .. ':' .. arguments.uuid then return claimed(id, record, held, attempt) end
  if status == 'running' or status == 'waiting' then return {'held'} end
  if status ~= 'queued' then return {'finished'} end
  local paused, cancelled, after = unpack(redis.call('HMGET', record, 'paused', 'cancel', 'after'))
  if (paused and not cancelled) or after then return {'held'} end  -- its tickets may still be in the queue
  if not arguments.is_alone and standstills(record) == arguments.alone_after and not cancelled then
    local starts, starter, due = unpack(redis.call('HMGET', record, 'starts', 'starter', 'start_due'))
    if starter == arguments.uuid then return {'alone', 'id', id} end
    -- The queue may hold several tickets: all that come before the process had its time are for that process.
    if starter and now < tonumber(due) then return {'held'} end
    starts = tonumber(starts or 0)
    if starts > 0 and was_lost(record) then starts = redis.call('HINCRBY', record, 'starts', -1) end
    if starts < arguments.most_starts then
      due = now + arguments.start_ms
      redis.call('HINCRBY', record, 'starts', 1)
      redis.call('HSET', record, 'starter', arguments.uuid, 'start_due', due, 'start_owner', arguments.owner)
      redis.call('ZADD', leases, due, id)
      return {'alone', 'id', id}
    end
  end
  local lost, tried, before = unpack(redis.call('HMGET', record, 'lost', 'tried', 'last_fence'))
  lost, tried, before = tonumber(lost or 0), tonumber(tried or 0), before or ''
  attempt = attempt + 1
  local fence = attempt .. ':' .. arguments.uuid
  redis.call('HSET', record, 'status', 'running', 'attempt', attempt, 'fence', fence, 'worker', arguments.worker,
    'owner', arguments.owner, 'lost', math.min(lost, tried), 'tried', tried + 1, 'last_fence', fence,
    'fence_before', before)
  redis.call('HSETNX', record, 'started', arguments.now)
  redis.call('ZADD', leases, now + arguments.lease_ms, id)
  if arguments.is_alone then  -- after HSET, which a server without memory refuses only as a script's first write
    redis.call('HDEL', record, 'starts', 'starter', 'start_due', 'start_owner', 'lost_starts')
  end
  return claimed(id, record, fence, attempt)
end

local function is_taken(answer)
  return answer[1] == 'claimed' or answer[1] == 'alone'
end

local function claim_by_name()
  local owner = queue_owner(named)
  local answer = claim(arguments.id, named)
  if is_taken(answer) then dequeue(arguments, owner, arguments.id, true) end
  return answer
end

-- What an older version queued has a deadline for its claim, and is not in the queue. What is released or to be tried
-- again is not there yet: a janitor puts it into the queue when it is due, with another ticket.
local function is_of_older_version()
  local status, queued_at = unpack(redis.call('HMGET', named, 'status', 'queued_at'))
  if status ~= 'queued' or tonumber(queued_at or 0) > now then return false end
  if redis.call('ZSCORE', runs_of(arguments.queue, queue_owner(named)), arguments.id) then return false end
  return tonumber(redis.call('ZSCORE', leases, arguments.id) or 0) > now
end

-- Where this claim's answer was lost it took the run that the ticket names, or the record of that has which one.
local function claim_again()
  local uuid, id = string.match(redis.call('HGET', named, 'ticket') or '', '^(%S+) (%S+)$')
  if uuid == arguments.uuid then return claim(id, arguments.record_head .. id .. arguments.record_tail) end
  local fence, attempt = unpack(redis.call('HMGET', named, 'fence', 'attempt'))
  if attempt and fence == attempt .. ':' .. arguments.uuid then return claim(arguments.id, named) end
end

local function claim_next()
  local owner = first_owner(arguments.queue)
  if not owner then return {'finished'} end
  local id = redis.call('ZRANGE', runs_of(arguments.queue, owner), 0, 0)[1]
  if not id then  -- another program has removed its runs
    redis.call('ZREM', arguments.queue, owner)
    return claim_next()
  end
  local record = arguments.record_head .. id .. arguments.record_tail
  local answer = claim(id, record)
  dequeue(arguments, owner, id, is_taken(answer))
  if not is_taken(answer) then return claim_next() end  -- an older version has taken it
  if record ~= named and redis.call('EXISTS', named) == 1 then
    redis.call('HSET', named, 'ticket', arguments.uuid .. ' ' .. id)
  end
  return answer
end

local function claim_by_ticket()
  local again = claim_again()
  if again then return again end
  if is_of_older_version() then
    local answer = claim(arguments.id, named)
    if is_taken(answer) then return answer end
  end
  return claim_next()
end

return arguments.is_ticket and claim_by_ticket() or claim_by_name()

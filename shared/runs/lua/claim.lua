-- One worker takes a queued delegation: the fence token is 'attempt:uuid', so that no number is ever handed out twice.
-- KEYS: record, leases, presence (the workers' processes that are there)
-- Arguments: id, uuid, worker, owner (the worker's process), lease_ms, now (ISO), alone_after (the number of its workers'
--   standstills after which a run gets a process of its own), is_alone (whether this is such a process), start_ms (the
--   time that such a process has until it claims the run), most_starts (how many may end before they do),
--   most_lost_starts (how many more may end because their worker's process did) and fields (those of the record to return)
-- Returns a verdict ('claimed', 'alone', 'held', 'finished' or 'gone') and, of a claimed run, names and values: fence,
-- attempt, stalls and those of the fields that are set. lost counts the workers that were lost in a row, ended
-- is how the attempt before ended (lost, handed_over, retried), starts counts the processes of its own that were started
-- in a row and have not claimed it. Older versions lose what they cannot read, and do not count in tried how many
-- attempts in a row have begun: a loss that is not among these is not the run's fault.
local arguments = cjson.decode(ARGV[1])
local record, leases, presence = KEYS[1], KEYS[2], KEYS[3]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function claimed(fence, attempt)
  local answer = {'claimed', 'fence', fence, 'attempt', attempt}
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
local function was_lost()
  local owner = redis.call('HGET', record, 'start_owner') or ''
  if owner == '' or redis.call('ZSCORE', presence, owner) then return false end
  return redis.call('HINCRBY', record, 'lost_starts', 1) <= arguments.most_lost_starts
end

local status, held, attempt = unpack(redis.call('HMGET', record, 'status', 'fence', 'attempt'))
if not status then return {'gone'} end
if status == 'running' and held == attempt .. ':' .. arguments.uuid then return claimed(held, attempt) end
if status == 'running' or status == 'waiting' then return {'held'} end
if status ~= 'queued' then return {'finished'} end
local paused, cancelled, after = unpack(redis.call('HMGET', record, 'paused', 'cancel', 'after'))
if (paused and not cancelled) or after then return {'held'} end  -- its tickets may still be in the queue
if not arguments.is_alone and standstills(record) == arguments.alone_after and not cancelled then
  local starts, starter, due = unpack(redis.call('HMGET', record, 'starts', 'starter', 'start_due'))
  if starter == arguments.uuid then return {'alone'} end
  -- The queue may hold several tickets: all that come before the process had its time are for that process.
  if starter and now < tonumber(due) then return {'held'} end
  starts = tonumber(starts or 0)
  if starts > 0 and was_lost() then starts = redis.call('HINCRBY', record, 'starts', -1) end
  if starts < arguments.most_starts then
    due = now + arguments.start_ms
    redis.call('HINCRBY', record, 'starts', 1)
    redis.call('HSET', record, 'starter', arguments.uuid, 'start_due', due, 'start_owner', arguments.owner)
    redis.call('ZADD', leases, due, arguments.id)
    return {'alone'}
  end
end
local lost, tried = unpack(redis.call('HMGET', record, 'lost', 'tried'))
lost, tried = tonumber(lost or 0), tonumber(tried or 0)
attempt = attempt + 1
local fence = attempt .. ':' .. arguments.uuid
redis.call('HSET', record, 'status', 'running', 'attempt', attempt, 'fence', fence, 'worker', arguments.worker,
  'owner', arguments.owner, 'lost', math.min(lost, tried), 'tried', tried + 1)
redis.call('HSETNX', record, 'started', arguments.now)
redis.call('ZADD', leases, now + arguments.lease_ms, arguments.id)
if arguments.is_alone then  -- after HSET, which a server without memory refuses only as a script's first write
  redis.call('HDEL', record, 'starts', 'starter', 'start_due', 'start_owner', 'lost_starts')
end
return claimed(fence, attempt)

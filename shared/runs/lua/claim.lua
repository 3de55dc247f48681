-- One worker takes a queued delegation: the fence token is 'attempt:uuid', so that no number is ever handed out twice.
-- KEYS: record, leases
-- Arguments: id, uuid, worker, owner (the worker's process), lease_ms, now (ISO), alone_after (the number of its workers'
--   standstills after which a run gets a process of its own) and is_alone (whether this is such a process)
-- Returns a verdict ('claimed', 'alone', 'held', 'finished' or 'gone') and, of a claimed run, names and values: fence, attempt and
-- those of the record's fields below that are set. lost counts the workers that were lost in a row, ended is how the
-- attempt before ended (lost, handed_over, retried). Older versions lose what they cannot read, and do not count in
-- tried how many attempts in a row have begun: a loss that is not among these is not the run's fault.
local arguments = cjson.decode(ARGV[1])
local record, leases = KEYS[1], KEYS[2]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function claimed(fence, attempt)
  local answer = {'claimed', 'fence', fence, 'attempt', attempt}
  local names = {'seq', 'request', 'limits', 'checkpoint', 'depth', 'lost', 'ended', 'cancel', 'retries',
    'retried_after', 'file_turns', 'trust', 'path', 'elapsed_ms', 'output', 'webhook', 'upstreams', 'messages',
    'announced', 'read', 'trace', 'attempt_span', 'stalls'}
  local values = redis.call('HMGET', record, unpack(names))
  for at, name in ipairs(names) do
    if values[at] then
      answer[#answer + 1] = name
      answer[#answer + 1] = values[at]
    end
  end
  return answer
end

local status, held, attempt = unpack(redis.call('HMGET', record, 'status', 'fence', 'attempt'))
if not status then return {'gone'} end
if status == 'running' and held == attempt .. ':' .. arguments.uuid then return claimed(held, attempt) end
if status == 'running' or status == 'waiting' then return {'held'} end
if status ~= 'queued' then return {'finished'} end
local paused, cancelled, after = unpack(redis.call('HMGET', record, 'paused', 'cancel', 'after'))
if (paused and not cancelled) or after then return {'held'} end  -- its tickets may still be in the queue
local lost, tried, stalls = unpack(redis.call('HMGET', record, 'lost', 'tried', 'stalls'))
if tonumber(stalls) == arguments.alone_after and not (arguments.is_alone or cancelled) then return {'alone'} end
lost, tried = tonumber(lost or 0), tonumber(tried or 0)
attempt = attempt + 1
local fence = attempt .. ':' .. arguments.uuid
redis.call('HSET', record, 'status', 'running', 'attempt', attempt, 'fence', fence, 'worker', arguments.worker,
  'owner', arguments.owner, 'lost', math.min(lost, tried), 'tried', tried + 1)
redis.call('HSETNX', record, 'started', arguments.now)
redis.call('ZADD', leases, now + arguments.lease_ms, arguments.id)
return claimed(fence, attempt)

-- One worker takes a queued delegation: the fence token is 'attempt:uuid', so that no number is ever handed out twice.
-- KEYS: record, leases · ARGV: id, uuid, worker, lease ms, now as ISO text, owner (the worker's process)
-- Returns {verdict, fence, attempt, seq, request, limits, checkpoint, depth, lost, ended, cancel}: claimed, held, finished
-- or gone. lost counts the workers that were lost in a row, ended says how the attempt before ended (lost, handed_over).
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local held =
  redis.call('HMGET', KEYS[1], 'status', 'fence', 'attempt', 'seq', 'request', 'limits', 'checkpoint', 'depth',
    'lost', 'ended', 'cancel')
if not held[1] then return {'gone'} end
local mine = held[3] .. ':' .. ARGV[2]
if held[1] == 'running' and held[2] == mine then return {'claimed', mine, unpack(held, 3, 11)} end
if held[1] == 'running' or held[1] == 'waiting' then return {'held'} end
if held[1] ~= 'queued' then return {'finished'} end
local attempt = held[3] + 1
local fence = attempt .. ':' .. ARGV[2]
redis.call('HSET', KEYS[1], 'status', 'running', 'attempt', attempt, 'fence', fence, 'worker', ARGV[3], 'owner', ARGV[6])
redis.call('HSETNX', KEYS[1], 'started', ARGV[5])
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[4]), ARGV[1])
return {'claimed', fence, attempt, unpack(held, 4, 11)}

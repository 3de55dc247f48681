-- Books what a run spent and reserves the money for its next model call, within the day's caps of the whole fleet.
-- A run has one reservation at a time; every call replaces the last one, so a lost answer or worker leaves none behind.
-- KEYS: the day's spending, reserved money, record. Money is in billionths of a US dollar.
-- Arguments: fence, total (all that this run spent itself), wanted and least (for the next call; 0 reserves nothing),
--   counters (names of what the run counts for), caps (of them: counter, most), seconds (how long a day is kept)
-- Returns {'fenced'}, {'granted', money} (between least and wanted), {'full'} where others have reserved the rest, or
-- {'over', index of the cap} where too little is left even if all reservations are given back.
local arguments = cjson.decode(ARGV[1])
local day, reserved, record = KEYS[1], KEYS[2], KEYS[3]
local fence, charged, kept = unpack(redis.call('HMGET', record, 'fence', 'charged', 'reserved'))
if not fence or fence ~= arguments.fence then return {'fenced'} end

local function add(key, counter, money)
  if redis.call('HINCRBY', key, counter, string.format('%.0f', money)) == 0 then redis.call('HDEL', key, counter) end
end

local spent = arguments.total - tonumber(charged or 0)
if spent > 0 then
  for _, counter in ipairs(arguments.counters) do add(day, counter, spent) end
  redis.call('EXPIRE', day, arguments.seconds)
  redis.call('HSET', record, 'charged', string.format('%.0f', arguments.total))
end
if kept then
  local before = cjson.decode(kept)
  for _, counter in ipairs(before.counters) do add(reserved, counter, -before.money) end
  redis.call('HDEL', record, 'reserved')
end
if arguments.wanted == 0 then return {'granted', 0} end

local money = arguments.wanted
for index, cap in ipairs(arguments.caps) do
  local left = cap.most - tonumber(redis.call('HGET', day, cap.counter) or 0)
  if left < arguments.least then return {'over', index - 1} end
  money = math.min(money, left - tonumber(redis.call('HGET', reserved, cap.counter) or 0))
end
if money < arguments.least then return {'full'} end
for _, counter in ipairs(arguments.counters) do add(reserved, counter, money) end
redis.call('HSET', record, 'reserved', cjson.encode({money = money, counters = arguments.counters}))
return {'granted', string.format('%.0f', money)}

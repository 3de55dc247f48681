-- Books what a run spent, and reserves the money for its next model call: in one step for the run, the delegations that
-- it is nested in, its owner, its labels and the whole fleet.
-- A run has one reservation at a time; every call replaces the last one. A reservation that another attempt has left, or
-- whose call was cut off, counts as spent in full: nothing states what the endpoint bills for that call.
-- KEYS: record, reserved money, money spent in all, caps of owners. Money is in billionths of a US dollar.
-- Arguments: id, fence, total (all that this run spent itself), wanted and least (for the next call; 0 reserves nothing),
--   number (of the reservation: of the new one, or of that which ends), cut (whether its call was cut off), counters (names
--   of what the run counts for), caps (name, counter, days, most), day_head (a key of a day before its date), days (dates,
--   the latest first), first_day (the days from 1970 to it), seconds (how long a day is kept), record_head and record_tail
-- A cap's days are the width of its window, today included; 0 is for ever. A run with an owner counts for '@owner', too.
-- Returns {'fenced'}, {'granted', money} (between least and wanted), {'full'} where others have reserved the rest, or
-- {'over', cap} where too little is left even if all reservations are given back; a delegation's own limit has no days.
local arguments = cjson.decode(ARGV[1])
local record, reserved, totals, owners = unpack(KEYS)
local fence, charged, charger, kept, path, owner, limits = unpack(redis.call('HMGET', record,
  'fence', 'charged', 'charger', 'reserved', 'path', 'caller', 'limits'))
if not fence or fence ~= arguments.fence then return {'fenced'} end

local function add(key, counter, money)
  if redis.call('HINCRBY', key, counter, string.format('%.0f', money)) == 0 then redis.call('HDEL', key, counter) end
end

-- The clock is that of Redis: workers whose clocks differ count the same days.
local behind = arguments.first_day - math.floor(redis.call('TIME')[1] / 86400)
local today = math.max(1, math.min(behind + 1, 3))

local counters, caps, budgets = arguments.counters, arguments.caps, {}
if owner then
  counters[#counters + 1] = '@' .. owner
  for _, cap in ipairs(cjson.decode(redis.call('HGET', owners, owner) or '[]')) do caps[#caps + 1] = cap end
end
for id in string.gmatch((path or '') .. ' ' .. arguments.id, '%S+') do
  local key = arguments.record_head .. id .. arguments.record_tail
  local text = id == arguments.id and limits or redis.call('HGET', key, 'limits')
  local most = text and cjson.decode(text).maxCostUsd
  if type(most) == 'number' then
    local name = id == arguments.id and 'maxCostUsd' or 'maxCostUsd of ' .. id
    budgets[#budgets + 1] = {name = name, counter = id, most = math.floor(most * 1e9 + 0.5), record = key}
  end
end

local function spent_of(cap)
  if cap.record then return tonumber(redis.call('HGET', cap.record, 'tree_spent') or 0) end
  if cap.days == 0 then return tonumber(redis.call('HGET', totals, cap.counter) or 0) end
  local sum = 0
  for at = today, math.min(today + cap.days - 1, #arguments.days) do
    sum = sum + tonumber(redis.call('HGET', arguments.day_head .. arguments.days[at], cap.counter) or 0)
  end
  return sum
end

charged = tonumber(charged or 0)
-- The attempt before may have booked a reply that it could not store: this one gets that reply once more.
if charger ~= fence then charged = math.min(charged, arguments.total) end
local spent = math.max(0, arguments.total - charged)
if kept then
  local before = cjson.decode(kept)
  for _, counter in ipairs(before.counters) do add(reserved, counter, -before.money) end
  redis.call('HDEL', record, 'reserved')
  local cut = arguments.cut and before.number == arguments.number
  if cut or before.fence ~= fence then spent = math.max(spent, before.money) end
end
redis.call('HSET', record, 'charged', string.format('%.0f', math.max(charged, arguments.total)), 'charger', fence)
if spent > 0 then
  local day = arguments.day_head .. arguments.days[today]
  for _, counter in ipairs(counters) do add(day, counter, spent) end
  for _, cap in ipairs(caps) do
    if cap.days == 0 then add(totals, cap.counter, spent) end
  end
  redis.call('EXPIRE', day, arguments.seconds)
  for _, budget in ipairs(budgets) do
    redis.call('HINCRBY', budget.record, 'tree_spent', string.format('%.0f', spent))
  end
end
if arguments.wanted == 0 then return {'granted', 0} end

local money = arguments.wanted
for _, list in ipairs({budgets, caps}) do
  for _, cap in ipairs(list) do
    local left = cap.most - spent_of(cap)
    if left < arguments.least then return {'over', cjson.encode(cap)} end
    money = math.min(money, left - tonumber(redis.call('HGET', reserved, cap.counter) or 0))
  end
end
if money < arguments.least then return {'full'} end
for _, budget in ipairs(budgets) do counters[#counters + 1] = budget.counter end
for _, counter in ipairs(counters) do add(reserved, counter, money) end
redis.call('HSET', record, 'reserved', cjson.encode({
  money = money, counters = counters, fence = fence, number = arguments.number}))
return {'granted', string.format('%.0f', money)}

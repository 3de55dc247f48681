-- A part of other scripts. Queues notifications in the step that stores their events: of each the event's number, and JSON.
local function notify(queue, id, record, notifications)
  local clock = redis.call('TIME')
  for _, each in ipairs(notifications) do
    if redis.call('HSETNX', record .. ':webhooks', each[1], each[2]) == 1 then
      redis.call('ZADD', queue, clock[1] * 1000 + math.floor(clock[2] / 1000), id .. '-' .. each[1])
    end
  end
end


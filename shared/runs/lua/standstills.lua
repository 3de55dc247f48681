-- How often workers were blocked while they had a run. A number of completed turns since then takes one of them back, and
-- not the next turn: a run that brings its workers to a standstill answers other calls in between.
local CLEAN_TURNS = 10

local function turns_of(record)
  local checkpoint = redis.call('HGET', record, 'checkpoint')
  return checkpoint and cjson.decode(checkpoint).turns or 0
end

local function standstills(record)
  local stalls, since = unpack(redis.call('HMGET', record, 'stalls', 'stalled_turn'))
  if not stalls then return 0 end
  local clean = math.max(turns_of(record) - tonumber(since or 0), 0)
  return math.max(tonumber(stalls) - math.floor(clean / CLEAN_TURNS), 0)
end

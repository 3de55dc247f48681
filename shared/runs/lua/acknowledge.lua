-- Counts a write that replicas are to acknowledge, and finds out whether an earlier one is gone: replicas have the writes
-- in their order, so what came before a count that is there is there, too.
-- A history is what servers have in common that were replicas of each other without a promotion in between: a promoted
-- replica, and a server that was started again, begin one of their own.
-- KEYS: acknowledged, leases
-- Arguments: history and number (what the process knows as acknowledged; '' for nothing), adds (whether a write is
--   counted), metrics and lost (the field that counts losses), record_head and record_tail (a record's key around its id)
-- Returns the history of this server, the number of this write, and how many writes of the history that was given are
-- here; -1 where none of them is missing.
local arguments = cjson.decode(ARGV[1])
local acknowledged, leases = KEYS[1], KEYS[2]
local history = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local missing_from = -1
if arguments.history ~= '' then
  local here = tonumber(redis.call('HGET', acknowledged, arguments.history) or 0)
  if here < arguments.number then
    missing_from = here
    -- Several processes find the same loss. What is accepted afterwards has lost nothing. One without an attempt is in
    -- doubt, too: its claim may be lost.
    if redis.call('HSETNX', acknowledged, 'lost:' .. arguments.history, history) == 1 then
      redis.call('HINCRBY', arguments.metrics, arguments.lost, 1)
      local doubted = 0
      for _, id in ipairs(redis.call('ZRANGE', leases, 0, -1)) do
        local record = arguments.record_head .. id .. arguments.record_tail
        if redis.call('EXISTS', record) == 1 then
          redis.call('HSET', record, 'doubt', '1')
          doubted = doubted + 1
        end
      end
      local loss = {at = tonumber(redis.call('TIME')[1]), writes = arguments.number - here, doubted = doubted}
      redis.call('HSET', acknowledged, 'lost:' .. arguments.history, cjson.encode(loss))
    end
  end
end
local number = 0
if arguments.adds then number = redis.call('HINCRBY', acknowledged, history, 1) end
return {history, number, missing_from}

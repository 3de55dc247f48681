-- A part of other scripts. Adds to the totals of the metrics, in the step that makes true what they count: a command that
-- is sent again, a worker without the lease and another attempt count nothing twice.
local function count(metrics, counts)
  for field, amount in pairs(counts) do redis.call('HINCRBY', metrics, field, amount) end
end

local function amount_of(spent, name)
  local amount = spent[name]
  if not amount or amount == cjson.null then return 0 end  -- null: the price is not known
  return name == 'costUsd' and math.floor(amount * 1e6 + 0.5) or amount
end

-- Adds to the counts what a run has spent between two sums in its record; fields: by the name of the amount.
local function add_spent(counts, fields, before, after)
  before, after = cjson.decode(before or '{}'), cjson.decode(after)
  for name, field in pairs(fields) do
    local more = amount_of(after, name) - amount_of(before, name)
    if more > 0 then counts[field] = more end
  end
end


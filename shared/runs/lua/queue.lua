-- A part of other scripts. The queue of the runs that wait for a place in a worker, in an order that is fair to their
-- owners. arguments.queue has the owners of waiting runs by their turn; the earliest turn is next. For each owner a set has
-- its runs: the highest priority first, of equals child delegations, for which others wait, then the one accepted first.
-- A run that starts moves its owner's turn on by one over the owner's weight (arguments.weights). An owner who joins gets a
-- turn behind the earliest one, as if a run of it had just started: so new owners never go before those that wait.
-- A child delegation counts for the owner of its root, whose name is in its record (share). Delegations of the main token
-- count by session; those without one together, because their priorities order them.
local LATER = 2 ^ -20  -- of owners with equal turns the one is next whose last run started first

local function queue_owner(record)
  local share, caller, session = unpack(redis.call('HMGET', record, 'share', 'caller', 'session'))
  if share then return share end
  return caller and 'owner:' .. caller or session and session ~= '' and 'session:' .. session or 'main'
end

local function runs_of(queue, owner) return queue .. ':' .. owner end

local function step_of(weights, owner)
  local name = string.match(owner, '^owner:(.*)$')
  return 1 / (name and tonumber(redis.call('HGET', weights, name)) or 1)
end

local function set_turn(queue, owner, turn)
  redis.call('ZADD', queue, string.format('%.17g', turn), owner)
end

-- Returns the owner whose turn is next, and the turn.
local function first_owner(queue)
  return unpack(redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES'))
end

local function enqueue(arguments, record, id)
  local queue, owner = arguments.queue, queue_owner(record)
  local priority, depth = unpack(redis.call('HMGET', record, 'priority', 'depth'))
  redis.call('ZADD', runs_of(queue, owner), -2 * (priority or 5) - (depth and 1 or 0), id)
  if redis.call('ZSCORE', queue, owner) then return end
  local _, turn = first_owner(queue)
  set_turn(queue, owner, (turn or 0) + step_of(arguments.weights, owner))
end

-- Takes a run out; of one that has started its owner's turn moves on.
local function dequeue(arguments, owner, id, has_started)
  local queue, runs = arguments.queue, runs_of(arguments.queue, owner)
  if redis.call('ZREM', runs, id) == 0 then return end
  if redis.call('EXISTS', runs) == 0 then
    redis.call('ZREM', queue, owner)
  elseif has_started then
    set_turn(queue, owner, redis.call('ZSCORE', queue, owner) + step_of(arguments.weights, owner) + LATER)
  end
end

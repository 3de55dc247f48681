-- Deletes the records of delegations and lists their ids in the same step: a listed id proves that its files may go, a
-- record that is missing does not. The records go first, because a server whose memory is full takes writes only then.
-- KEYS: the list, then all keys of the delegations · Arguments: ids, seconds and most (how long, and how many are listed)
local arguments, pruned, now = cjson.decode(ARGV[1]), KEYS[1], redis.call('TIME')[1]
for at = 2, #KEYS do redis.call('DEL', KEYS[at]) end
for _, id in ipairs(arguments.ids) do redis.call('ZADD', pruned, now, id) end
redis.call('ZREMRANGEBYSCORE', pruned, '-inf', now - arguments.seconds)
redis.call('ZREMRANGEBYRANK', pruned, 0, -1 - arguments.most)
redis.call('EXPIRE', pruned, arguments.seconds)

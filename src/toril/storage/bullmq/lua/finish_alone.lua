-- Complete one job that has the usual fields only and is kept, as `finish` does in a queue that is
-- neither paused nor bounded, and hand out none. A lone job needs little of what `finish` makes at
-- every call. Anything else is left untouched.
-- ARGV[2]  id      ARGV[3]  its token      ARGV[4]  result      ARGV[5]  keep time in ms or ''
-- Returns 1, or 0 if the job was left
-- Events: completed, drained
local id, token, result, ttl = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local job, active, events = base .. id, base .. 'active', base .. 'events'
local lock, stalled, children = job .. ':lock', base .. 'stalled', job .. ':dependencies'
local attributes = call('HMGET', base .. 'meta', 'paused', 'concurrency', 'max', 'opts.maxLenEvents')
if attributes[1] or attributes[2] or attributes[3] then return 0 end
-- Nine fields are those of a bare job that was handed out: see `finish`.
if call('GET', lock) ~= token or redis.pcall('HLEN', job) ~= 9 then return 0 end
local marked = call('EXISTS', stalled, children) > 0
if marked and call('EXISTS', children) == 1 then return 0 end
if call('LREM', active, -1, id) == 0 then return 0 end
call('DEL', lock)
if marked then call('SREM', stalled, id) end
if ttl ~= '' then call('ZADD', base .. 'toril-ttl', now + tonumber(ttl), id) end
call('ZADD', base .. 'completed', stamp, id)
call('HSET', job, 'atm', '1', 'returnvalue', result, 'finishedOn', stamp)
call('XADD', events, 'MAXLEN', '~', attributes[4] or max_events(), '*', 'event', 'completed',
  'jobId', id, 'returnvalue', result, 'prev', 'active')
if call('EXISTS', active, base .. 'wait', base .. 'prioritized') == 0 then
  call('XADD', events, '*', 'event', 'drained')
end
return 1

-- Add jobs with a delay or a priority, as addDelayedJob and addPrioritizedJob do one by one. From
-- the first id that is taken, all is left untouched for the official scripts, so that things happen
-- in the order in which they would do them.
-- ARGV[2], ARGV[3]  '' or id and options of the last of the jobs in the call before: unless that
--           job is there, these are left too
-- ARGV[4]   the name of all jobs, or '' if each comes with its own
-- ARGV[5], ARGV[6]  what all jobs have before and after the id in their options, or '' and '' if
--           each comes with its own
-- ARGV[7…]  id, data, options as JSON if they are its own, delay in ms, priority, and the name if it
--           is its own
-- Returns {how many jobs were added, id of the last event}
-- Events: added, delayed, waiting
local args, events, delayed, shared = ARGV, base .. 'events', base .. 'delayed', ARGV[4]
if args[2] ~= '' and call('HGET', base .. args[2], 'opts') ~= args[3] then return {0, ''} end
local head, tail = args[5], args[6]
local own = head == '' and 1 or 0
local size = 4 + own + (shared == '' and 1 or 0)
local count, jobs, ids, seen, last = (#args - 6) / size, {}, {}, {}, ''
local due, ranked, latest = {}, {}, {}
for number = 1, count do jobs[number] = base .. args[7 + (number - 1) * size] end
local taken = call('EXISTS', unpack(jobs)) > 0

-- Jobs of one millisecond keep their order, as long as there are no more than 4096.
local function score_at(time)
  local least, most = time * 0x1000, (time + 1) * 0x1000 - 1
  local before = latest[time] or tonumber(
    call('ZREVRANGEBYSCORE', delayed, most, least, 'WITHSCORES', 'LIMIT', 0, 1)[2]
  )
  latest[time] = not before and least or before >= most and most or before + 1
  return latest[time]
end

for number = 1, count do
  local at, job, time, turn = 7 + (number - 1) * size, jobs[number], nil, nil
  local id, options, name = args[at], nil, shared
  local delay, priority = tonumber(args[at + 2 + own]), tonumber(args[at + 3 + own])
  if seen[id] or taken and call('EXISTS', job) == 1 then break end
  if shared == '' then name = args[at + size - 1] end
  if own == 1 then options = args[at + 2] else options = head .. id .. tail end
  if delay > 0 then
    time = now + delay
    due[#due + 1], due[#due + 2] = score_at(time), id
  else
    turn = redis.pcall('INCR', base .. 'pc')
    if type(turn) == 'table' then break end
    ranked[#ranked + 1] = priority * 0x100000000 + turn % 0x100000000
    ranked[#ranked + 1] = id
  end
  call('HSET', job, 'name', name, 'data', args[at + 1], 'opts', options,
    'timestamp', stamp, 'delay', args[at + 2 + own], 'priority', args[at + 3 + own])
  call('XADD', events, '*', 'event', 'added', 'jobId', id, 'name', name)
  if time then
    last = call('XADD', events, '*', 'event', 'delayed', 'jobId', id, 'delay', time)
  else
    last = call('XADD', events, '*', 'event', 'waiting', 'jobId', id)
  end
  ids[number], seen[id] = id, true
end
if #ids == 0 then return {0, last} end
call('ZREM', base .. 'toril-ttl', unpack(ids))
call('XTRIM', events, 'MAXLEN', '~', max_events())
call('INCRBY', base .. 'id', #ids)
if #due > 0 then
  call('ZADD', delayed, unpack(due))
  local next_due = call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
  call('ZADD', base .. 'marker', tonumber(next_due) / 0x1000, '1')
end
if #ranked > 0 then
  call('ZADD', base .. 'prioritized', unpack(ranked))
  local paused, maxed = held_back()
  if not paused and not maxed then ring() end
end
return {#ids, last}

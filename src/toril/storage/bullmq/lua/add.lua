-- Add plain jobs, as addStandardJob does one by one, if the queue is plain too: neither paused
-- nor bounded. From the first id that is taken, all is left untouched for the official script, so
-- that things happen in the order in which it would do them.
-- ARGV[2], ARGV[3]  '' or id and options of the last of the jobs in the call before: unless that
--           job is there, these are left too
-- ARGV[4]   the name of all jobs, or '' if each comes with its own
-- ARGV[5], ARGV[6]  what all jobs have before and after the id in their options, or '' and '' if
--           each comes with its own
-- ARGV[7…]  id, data, options as JSON if they are its own, and the name if it is its own
-- Returns {how many jobs were added or -1 if the queue is why there are none, id of the last event
-- or '' if some were left}
-- Events: added, waiting
local args, events, shared = ARGV, base .. 'events', ARGV[4]
local attributes = call('HMGET', base .. 'meta', 'paused', 'concurrency', 'opts.maxLenEvents')
if attributes[1] or attributes[2] then return {-1, ''} end
if args[2] ~= '' and call('HGET', base .. args[2], 'opts') ~= args[3] then return {0, ''} end
local head, tail = args[5], args[6]
local own = head == '' and 1 or 0
local size = 2 + own + (shared == '' and 1 or 0)
local count, jobs, ids, seen, last = (#args - 6) / size, {}, {}, {}, ''
for number = 1, count do jobs[number] = base .. args[7 + (number - 1) * size] end
local taken = call('EXISTS', unpack(jobs)) > 0
for number = 1, count do
  local at, job = 7 + (number - 1) * size, jobs[number]
  local id, name, options = args[at], shared, nil
  if seen[id] or taken and call('EXISTS', job) == 1 then break end
  if shared == '' then name = args[at + size - 1] end
  if own == 1 then options = args[at + 2] else options = head .. id .. tail end
  call('HSET', job, 'name', name, 'data', args[at + 1], 'opts', options,
    'timestamp', stamp, 'delay', '0', 'priority', '0')
  call('XADD', events, '*', 'event', 'added', 'jobId', id, 'name', name)
  if number < count then
    call('XADD', events, '*', 'event', 'waiting', 'jobId', id)
  else
    last = call('XADD', events, 'MAXLEN', '~', attributes[3] or max_events(), '*',
      'event', 'waiting', 'jobId', id)
  end
  ids[number], seen[id] = id, true
end
if #ids > 0 then
  local kept = base .. 'toril-ttl'
  if #ids == 1 or call('EXISTS', kept) == 1 then call('ZREM', kept, unpack(ids)) end
  if last == '' then call('XTRIM', events, 'MAXLEN', '~', attributes[3] or max_events()) end
  call('INCRBY', base .. 'id', #ids)
  call('LPUSH', base .. 'wait', unpack(ids))
  ring()
end
return {#ids, last}

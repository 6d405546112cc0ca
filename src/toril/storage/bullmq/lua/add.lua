-- Add plain jobs, as addStandardJob does one by one, if the queue is plain too: neither paused
-- nor bounded. From the first id that is taken, all is left untouched for the official script, so
-- that things happen in the order in which it would do them.
-- ARGV[2…]  id, name, data, options as JSON each; after them, if anything, id and options of the
--           last of the jobs in the call before: unless that job is there, these are left too
-- Returns '1' for each job that was added, '0' for each that was left, 'b' if the queue is why
-- Events: added, waiting
local attributes = call('HMGET', base .. 'meta', 'paused', 'concurrency')
local plain = not attributes[1] and not attributes[2]
local left = plain and '0' or 'b'
local last = #ARGV - (#ARGV - 1) % 4
if last < #ARGV and call('HGET', base .. ARGV[last + 1], 'opts') ~= ARGV[last + 2] then
  plain = false
end
local timed = call('EXISTS', base .. 'toril-ttl') == 1
local events = base .. 'events'
local flags, lined_up, jobs, fresh = {}, {}, {}, {}
for at = 2, last, 4 do
  jobs[#jobs + 1] = base .. ARGV[at]
  fresh[ARGV[at]] = true
end
local taken = plain and call('EXISTS', unpack(jobs)) > 0
for number, job in ipairs(jobs) do
  local at = number * 4 - 2
  local id, name = ARGV[at], ARGV[at + 1]
  plain = plain and fresh[id] and not (taken and call('EXISTS', job) == 1)
  if plain then
    fresh[id] = nil
    if timed then call('ZREM', base .. 'toril-ttl', id) end
    call('HSET', job, 'name', name, 'data', ARGV[at + 2], 'opts', ARGV[at + 3],
      'timestamp', ARGV[1], 'delay', '0', 'priority', '0')
    call('XADD', events, '*', 'event', 'added', 'jobId', id, 'name', name)
    call('XADD', events, '*', 'event', 'waiting', 'jobId', id)
    lined_up[number] = id
  end
  flags[number] = plain and '1' or left
end
if #lined_up > 0 then
  call('XTRIM', events, 'MAXLEN', '~', max_events())
  call('INCRBY', base .. 'id', #lined_up)
  call('LPUSH', base .. 'wait', unpack(lined_up))
  ring()
end
return table.concat(flags)

-- Add plain jobs, as addStandardJob does one by one, if the queue is plain too: neither paused
-- nor bounded. From the first id that is taken, all is left untouched for the official script, so
-- that things happen in the order in which it would do them.
-- ARGV[2…]  id, name, data, options as JSON each
-- Returns '1' for each job that was added, '0' for each that was left, 'b' if the queue is why
-- Events: added, waiting
local flags, lined_up = {}, {}
local attributes = call('HMGET', base .. 'meta', 'paused', 'concurrency')
local plain = not attributes[1] and not attributes[2]
local left = plain and '0' or 'b'
local timed = call('EXISTS', base .. 'toril-ttl') == 1
local most = max_events()
local events = base .. 'events'
local ids, fresh = {}, {}
for at = 2, #ARGV, 4 do
  ids[#ids + 1] = base .. ARGV[at]
  fresh[ARGV[at]] = true
end
local taken = plain and call('EXISTS', unpack(ids)) > 0
for at = 2, #ARGV, 4 do
  local id, job = ARGV[at], base .. ARGV[at]
  plain = plain and fresh[id] and not (taken and call('EXISTS', job) == 1)
  if plain then
    fresh[id] = nil
    if timed then call('ZREM', base .. 'toril-ttl', id) end
    call('HSET', job, 'name', ARGV[at + 1], 'data', ARGV[at + 2], 'opts', ARGV[at + 3],
      'timestamp', ARGV[1], 'delay', 0, 'priority', 0)
    call('XADD', events, '*', 'event', 'added', 'jobId', id, 'name', ARGV[at + 1])
    call('XADD', events, 'MAXLEN', '~', most, '*', 'event', 'waiting', 'jobId', id)
    lined_up[#lined_up + 1] = id
  end
  flags[#flags + 1] = plain and '1' or left
end
if #lined_up > 0 then
  call('INCRBY', base .. 'id', #lined_up)
  call('LPUSH', base .. 'wait', unpack(lined_up))
  ring()
end
return table.concat(flags)

-- Stop or resume the handing out of jobs. The official script renames one list over the other
-- and so loses jobs that a 6.x client put there; this one merges.
-- ARGV[2]  'paused' or 'resumed'      ARGV[3]  '1': tell nobody
-- Returns 1 if the queue was not so before
-- Events: paused, resumed
local pausing = ARGV[2] == 'paused'
local was = call('HEXISTS', base .. 'meta', 'paused') == 1
local from, to = base .. 'paused', base .. 'wait'
if pausing then from, to = to, from end
if call('EXISTS', to) == 0 then
  if call('EXISTS', from) == 1 then call('RENAME', from, to) end
else
  -- Those that waited before are next: they go to the tail, in their order.
  while call('LMOVE', from, to, 'LEFT', 'RIGHT') do end
end
if pausing then
  call('HSET', base .. 'meta', 'paused', 1)
  call('DEL', base .. 'marker')
else
  call('HDEL', base .. 'meta', 'paused')
  if call('LLEN', base .. 'wait') > 0 or call('ZCARD', base .. 'prioritized') > 0 then
    ring()
  else
    local due = call('ZRANGE', base .. 'delayed', 0, 0, 'WITHSCORES')
    if due[2] then call('ZADD', base .. 'marker', tonumber(due[2]) / 0x1000, '1') end
  end
end
if ARGV[3] ~= '1' then call('XADD', base .. 'events', '*', 'event', ARGV[2]) end
return was ~= pausing and 1 or 0

-- Tell how long nothing will happen by itself.
-- Returns ms until the next delayed job, and ms until the rate limit of the queue is over; -1: none
local due = call('ZRANGE', base .. 'delayed', 0, 0, 'WITHSCORES')
local limit = call('HGET', base .. 'meta', 'max')
local limited = -1
if limit and tonumber(call('GET', base .. 'limiter') or 0) >= tonumber(limit) then
  limited = call('PTTL', base .. 'limiter')
end
local next_due = -1
if due[2] then next_due = math.max(0, math.floor(tonumber(due[2]) / 0x1000) - now) end
-- Whoever hands out a job sets the marker. After the last one it is for nothing: who waits would take
-- it, and look in vain.
if call('LLEN', base .. 'wait') == 0 and call('ZCARD', base .. 'prioritized') == 0 then
  call('ZREM', base .. 'marker', '0')
end
return {next_due, limited}

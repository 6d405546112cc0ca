-- Tell when a claim can bring something.
-- ARGV: time
-- Returns ms from now, 0 for at once, -1 if only news can change that
-- Events: none

local meta = call('HMGET', META, 'paused', 'concurrency', 'rate_max', 'window_end', 'window_used')
if meta[1] then return -1 end
if meta[2] and call('ZCARD', PROCESSING) >= tonumber(meta[2]) then return -1 end
local wait = 0
if call('LLEN', QUEUE) == 0 and call('ZCARD', PRIORITIZED) == 0 then
  local first = call('ZRANGE', DELAYED, 0, 0, 'WITHSCORES')
  if not first[2] then return -1 end
  wait = math.max(0, math.floor(tonumber(first[2]) / TIE) - now)
end
local ends = tonumber(meta[4] or 0)
if meta[3] and now < ends and tonumber(meta[5] or 0) >= tonumber(meta[3]) then
  wait = math.max(wait, ends - now)
end
return wait

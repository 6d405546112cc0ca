-- Look at jobs whose settle met a foreign or missing lock.
-- ARGV[2…]  ids
-- Returns {exists, ats, stc, active, timestamp} each
local found = {}
for at = 2, #ARGV do
  local job = base .. ARGV[at]
  local counts = call('HMGET', job, 'ats', 'stc', 'timestamp')
  found[at - 1] = {
    call('EXISTS', job), tonumber(counts[1] or 0), tonumber(counts[2] or 0),
    call('LPOS', base .. 'active', ARGV[at]) and 1 or 0, tonumber(counts[3] or 0),
  }
end
return found

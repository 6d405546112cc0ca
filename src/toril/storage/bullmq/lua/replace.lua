-- Give a pending job other data.
-- ARGV[2]  id      ARGV[3]  data
-- Returns 1 if it is pending
local id = ARGV[2]
if call('EXISTS', base .. id) == 0 then return 0 end
local state = state_of(id)
if state ~= 'waiting' and state ~= 'prioritized' and state ~= 'delayed' then return 0 end
call('HSET', base .. id, 'data', ARGV[3])
return 1

-- Write what outlives a job that is about to be finished, if its lock is still ours.
-- Runs in one transaction with moveToFinished, before it.
-- ARGV[2]  id       ARGV[3]  token       ARGV[4]  keep time of the result in ms, or ''
-- ARGV[5]  the packed ending, or ''      ARGV[6]  how long it stays readable, in ms
local id = ARGV[2]
if call('GET', base .. id .. ':lock') ~= ARGV[3] then return 0 end
if ARGV[4] ~= '' then call('ZADD', base .. 'toril-ttl', now + tonumber(ARGV[4]), id) end
if ARGV[5] ~= '' and (private_of(id)['w'] or call('HEXISTS', base .. id, 'toril-w') == 1) then
  call('SET', base .. 'toril-end:' .. id, ARGV[5], 'PX', ARGV[6])
end
return 1

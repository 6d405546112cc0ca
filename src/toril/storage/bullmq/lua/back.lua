-- Note that the newest event of a job tells no retry: it was handed back, postponed or put off.
-- ARGV[2]  id      ARGV[3]  the start that was handed back; '' for a job that was not running
-- Runs in one transaction with the official script that wrote the event, after it.
local id = ARGV[2]
local newest = call('XREVRANGE', base .. 'events', '+', '-', 'COUNT', 1)[1]
if not newest then return 0 end
local fields = fields_of(newest)
local kind = fields['event']
if fields['jobId'] ~= id or (kind ~= 'waiting' and kind ~= 'delayed') then return 0 end
if ARGV[3] ~= '' and call('HGET', base .. id, 'ats') ~= ARGV[3] then return 0 end
local key, oldest = base .. 'toril-back', call('XRANGE', base .. 'events', '-', '+', 'COUNT', 1)[1]
call('ZREMRANGEBYSCORE', key, 0, '(' .. time_of(oldest))
call('ZADD', key, time_of(newest), newest[1])
return 1

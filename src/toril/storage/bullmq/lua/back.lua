-- Note that the newest event of a job tells no retry: it was handed back, postponed or put off.
-- ARGV[2]  id      ARGV[3]  the start that was handed back; '' for a job that was not running
-- ARGV[4]  attempts made before that start: a retry has counted one more since
-- Runs in one transaction with the official script that wrote the event, after it; where that
-- script refused, the newest event may still be one of the job's, and is left alone.
local id = ARGV[2]
local newest = call('XREVRANGE', base .. 'events', '+', '-', 'COUNT', 1)[1]
if not newest then return 0 end
local fields = fields_of(newest)
local kind = fields['event']
if fields['jobId'] ~= id or (kind ~= 'waiting' and kind ~= 'delayed') then return 0 end
if ARGV[3] ~= '' then
  local record = call('HMGET', base .. id, 'ats', 'atm', 'attemptsMade')
  if record[1] ~= ARGV[3] or (record[2] or record[3] or '0') ~= ARGV[4] then return 0 end
end
local key, oldest = base .. 'toril-back', call('XRANGE', base .. 'events', '-', '+', 'COUNT', 1)[1]
call('ZREMRANGEBYSCORE', key, 0, '(' .. time_of(oldest))
call('ZADD', key, time_of(newest), newest[1])
return 1

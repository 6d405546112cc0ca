-- Store one job for the plain line if its id is free: what `enqueue` does with it, and no more.
-- ARGV: time, id, head, spec; the head is as there the end of the job's record
-- Returns 1 stored, 2 stored and the queue is not in the list of queues any more,
--   0 the id is taken, and nothing was done
-- Events: added + waiting

local id, head, time = ARGV[2], ARGV[3], pack(now)
local meta = call('HMGET', META, 't', 'e', 'events_kept', 'layout')
local number, last = (meta[1] or 0) + 1, (meta[2] or 0) + 2
local ending = string.byte(head, -1) == 195 and string.sub(head, 1, -2) or head
local record = '\158\161w' .. pack(number) .. time .. '\000\000\000\194\194\194' .. time .. '\000' .. ending
if call('HSETNX', JOBS, id, record) == 0 then return 0 end
call('HSET', SPECS, id, ARGV[4])
call('RPUSH', QUEUE, string.format('%d:', number) .. id)
call('HSET', META, 't', string.format('%.0f', number + 63), 'e', string.format('%.0f', last))
ring()

local first = string.byte(head) - 158
local name = string.sub(head, first, first + string.byte(head, first) - 160)
local keep = tonumber(meta[3] or EVENTS_KEPT)
call('XADD', base .. 'events', 'MINID', keep < 10000 and '=' or '~', math.max(0, last - keep + 1),
     string.format('%.0f-0', last), 'e', '\146' .. time
     .. '\221\000\000\000\008\146\165added\167waiting\145' .. pack(id) .. '\000' .. name
     .. '\194\194\194\194')
return meta[4] and 1 or 2

-- Delete everything but the numbers of the events.
-- ARGV: time, force (0|1)
-- Returns the number of running jobs if that forbids it, else -1
-- Events: none; those there are go too

local active = call('ZCARD', PROCESSING)
if active > 0 and ARGV[2] ~= '1' then return active end

-- What hangs on single jobs has keys of its own, which must be named to be deleted.
for _, key in ipairs({ JOBS, ENDED }) do
  local cursor = '0'
  repeat
    local page = call('HSCAN', key, cursor, 'COUNT', 1000)
    cursor = page[1]
    for number = 1, #page[2], 2 do
      local id, record = page[2][number], decode(page[2][number + 1])
      local extra = record and record[EXTRA]
      if extra and extra.h then call('DEL', base .. 'logs:' .. id) end
      if extra and extra.k then call('DEL', base .. 'dedup:' .. extra.k) end
      if record and key == JOBS then reply(id, record, 'g') end
    end
  until cursor == '0'
end
local last = call('HGET', META, 'e')
call('UNLINK', JOBS, ENDED, SPECS, RESULTS, PROGRESS, QUEUE, PRIORITIZED, DELAYED, PROCESSING, SHELF.c,
     SHELF.f, EXPIRY, WAKE, META, STALE, base .. 'events', base .. 'workers', base .. 'broken')
if last then call('HSET', META, 'e', last) end
return -1

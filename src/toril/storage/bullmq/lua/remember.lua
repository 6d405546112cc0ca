-- Keep the numbers of the event stream while the queue is destroyed around it.
-- ARGV[2]  'save' or 'restore'
local key, aside = base .. 'events', base .. 'toril-stream'
if ARGV[2] == 'save' then
  if call('EXISTS', key) == 1 then
    local flat = call('XINFO', 'STREAM', key)
    local info = {}
    for at = 1, #flat, 2 do info[flat[at]] = flat[at + 1] end
    call('HSET', aside, 'last', info['last-generated-id'], 'added', info['entries-added'])
  end
  return 0
end
local saved = call('HMGET', aside, 'last', 'added')
if saved[1] and call('EXISTS', key) == 0 then
  call('XGROUP', 'CREATE', key, 'toril', '$', 'MKSTREAM')
  call('XGROUP', 'DESTROY', key, 'toril')
  call('XSETID', key, saved[1], 'ENTRIESADDED', saved[2], 'MAXDELETEDID', saved[1])
end
call('DEL', aside)
return 0

-- Put before all else of `enqueue`: one job for the plain line whose id is free, the commonest
-- case by far, is stored without making what the others need. Any other call goes on from here.
-- ARGV, returns and events are those of `enqueue`.

if ARGV[2] == '1' and string.byte(ARGV[5]) ~= 150 then
  local id, head, time = ARGV[3], ARGV[5], pack(now)
  local meta = call('HMGET', META, 't', 'e', 'events_kept', 'layout')
  local number, last = (meta[1] or 0) + 1, (meta[2] or 0) + 2
  local ending = string.byte(head, -1) == 195 and string.sub(head, 1, -2) or head
  local record = '\158\161w' .. pack(number) .. time .. '\000\000\000\194\194\194' .. time .. '\000'
  if (ARGV[7] == '1' or call('HEXISTS', ENDED, id) == 0)
     and call('HSETNX', JOBS, id, record .. ending) == 1 then
    call('HSET', SPECS, id, ARGV[4])
    call('RPUSH', QUEUE, string.format('%d:', number) .. id)
    if call('LLEN', WAKE) == 0 then call('RPUSH', WAKE, '1') end
    local first = string.byte(head) - 158
    local name = string.sub(head, first, first + string.byte(head, first) - 160)
    local keep = tonumber(meta[3] or EVENTS_KEPT)
    call('HSET', META, 't', string.format('%.0f', number + 63), 'e', string.format('%.0f', last))
    call('XADD', base .. 'events', 'MINID', keep < 10000 and '=' or '~',
         math.max(0, last - keep + 1), string.format('%.0f-0', last), 'e',
         '\146' .. time .. '\221\000\000\000\008\146\165added\167waiting\145' .. pack(id) .. '\000'
         .. name .. '\194\194\194\194')
    if meta[4] then return 1 end
    return { '+w', '?' }
  end
end

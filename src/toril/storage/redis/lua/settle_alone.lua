-- Put before all else of `settle` where one job completed and none is claimed: a job that holds no
-- dedup key and keeps to no rule of retention is ended without making what the others need. Any
-- other goes on from here; so does each while there is something to forget that is past its time.
-- ARGV, returns and events are those of `settle`

local ended = unpack_msg(ARGV[2])[2]

if call('ZCOUNT', EXPIRY, '-inf', now) == 0 then
  local id, result = ended[4], ended[5]
  local fine, record = pcall(unpack_msg, call('HGET', JOBS, id))
  if fine and type(record) == 'table' and record[STATE] == 'a' and record[TOKEN] == ended[2]
     and record[STARTED] == ended[3] and type(record[MADE]) == 'number'
     and type(record[STALLS]) == 'number' and type(record[PROCESSED]) == 'number'
     and record[EXTRA] ~= nil and not (record[EXTRA] and (record[EXTRA].k or record[EXTRA].c)) then
    local extra, made, shelf = record[EXTRA], record[MADE] + 1, base .. 'completed'
    record[STATE], record[MADE], record[SINCE] = 'c', made, now
    record[TOKEN], record[SETTLED] = false, ended[2] .. ':' .. ended[3]
    if extra then
      extra.x = nil
      if extra.t then
        extra.e = now + extra.t
        call('ZADD', EXPIRY, extra.e, id)
      end
      if extra.r then reply(id, record, 'c', result) end
    end
    call('ZREM', PROCESSING, id)
    local close, between = close_with(#result)
    call('HDEL', JOBS, id)
    call('HSET', ENDED, id, pack(record) .. (between and result or '') .. close)
    if not between then
      call('HSET', RESULTS, id, result)
    elseif made > 1 then
      call('HDEL', RESULTS, id)
    end
    local at = call('ZCOUNT', shelf, now, string.format('(%.0f', now + 1))
    call('ZADD', shelf, string.format('%.0f.%d', now, math.min(101 + at, 999)), id)
    local size, told, drained = '\008', 1, ''
    if call('EXISTS', QUEUE, PRIORITIZED, PROCESSING) == 0 then
      size, told, drained = '\016', 2, '\167drained\194\194\194\194\194\194\194'
    elseif call('EXISTS', QUEUE, PRIORITIZED) > 0 and call('LLEN', WAKE) == 0 then
      call('RPUSH', WAKE, '1')
    end
    local meta = call('HMGET', META, 'e', 'events_kept')
    local last, keep = (meta[1] or 0) + told, tonumber(meta[2] or EVENTS_KEPT)
    call('HSET', META, 'e', string.format('%.0f', last))
    call('XADD', base .. 'events', 'MINID', keep < 10000 and '=' or '~',
         math.max(0, last - keep + 1), string.format('%.0f-0', last), 'e',
         '\146' .. pack(now) .. '\221\000\000\000' .. size
         .. pack('completed', id, made, record[NAME], record[WORKER], 'active',
                 now - record[PROCESSED], #result) .. drained)
    return { 'D', false }
  end
end

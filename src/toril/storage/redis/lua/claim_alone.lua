-- Put between `idle` and `claim`: one job in the plain line and none in any other, which is what a
-- claim that was left here mostly finds, is leased without making what the others need. Any other
-- call goes on from here.
-- ARGV are those of `idle`, returns and events those of `claim`

if there == 1 and ARGV[6] == '0' then
  local meta = call('HMGET', META, 'paused', 'concurrency', 'rate_max', 'events_kept', 'e')
  local line = call('LRANGE', QUEUE, 0, 1)
  if #line == 1 and not (meta[1] or meta[2] or meta[3]) then
    local colon = string.find(line[1], ':', 1, true) or 0
    local id = string.sub(line[1], colon + 1)
    local raw, spec = call('HGET', JOBS, id), call('HGET', SPECS, id)
    local fine, at, state, ticket, created, made, started, stalls, _, settled, _, _, name, extra =
      pcall(scan, raw)
    if fine and extra ~= nil and state == 'w' and type(made) == 'number'
       and type(started) == 'number' and type(stalls) == 'number'
       and ticket == tonumber(string.sub(line[1], 1, colon - 1)) then
      local who = pack(ARGV[3])
      started = started + 1
      -- First, for a user who may not claim: what it lacks is the right to this key.
      call('ZADD', PROCESSING, string.format('%.0f.101', now + ARGV[5]), id)
      call('LPOP', QUEUE)
      call('HSET', JOBS, id, '\158\161a' .. pack(ticket, created, made, started, stalls, ARGV[2],
           settled) .. who .. pack(now, now) .. string.sub(raw, at + 1))
      if ARGV[8] == '1' then call('ZADD', base .. 'workers', now, ARGV[3]) end
      local last, keep = (meta[5] or 0) + 1, tonumber(meta[4] or EVENTS_KEPT)
      call('HSET', META, 'e', string.format('%.0f', last))
      call('XADD', base .. 'events', 'MINID', keep < 10000 and '=' or '~',
           math.max(0, last - keep + 1), string.format('%.0f-0', last), 'e',
           '\146' .. pack(now) .. '\221\000\000\000\008\145\166active\145'
           .. pack(id, made + 1, name) .. who .. '\167waiting\194\194')
      return { 0, -1, now, { id }, { spec }, { 1, created, made, started, stalls } }
    end
  end
end

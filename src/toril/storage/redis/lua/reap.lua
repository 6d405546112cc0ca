-- Put jobs with lapsed leases back in front; fail those that stalled too often.
-- ARGV: time, max stalls, interval ms, failure for cancelled jobs, failure kind, reason format
-- Returns {next in ms, stalled ids, doomed ids}
-- Events: stalled, waiting, failed

local max_stalls, interval = tonumber(ARGV[2]), tonumber(ARGV[3])
local at = tonumber(call('HGET', META, 'reaped') or 0) + interval
if now < at then return { at - now, {}, {} } end
local stalled, doomed = {}, {}
-- Lease ends have a fraction that only orders them.
local lapsed = call('ZRANGEBYSCORE', PROCESSING, '-inf', '(' .. score(now + 1), 'LIMIT', 0, 250)

-- The rest of a very long list is left to the next call, at once.
local wait = #lapsed < 250 and interval or 0
if wait > 0 then call('HSET', META, 'reaped', score(now)) end

local function doom(id, record, asked)
  local kind, reason = ARGV[5], string.format(ARGV[6], record[STALLS], max_stalls)
  if asked then kind, reason = ARGV[4], 'cancelled; its worker had stalled' end
  local old = call('HGET', RESULTS, id)
  local failure = { kind, reason }
  if old and record[MADE] > 0 then
    local kept = unpack_msg(old)
    for number = 3, #kept do failure[number] = kept[number] end
  end
  release_key(id, record)
  record[STATE] = 'f'
  record[SINCE] = now
  local extra, payload = record[EXTRA], pack(failure)
  if extra then
    extra.x = nil
    if extra.t then
      extra.e = now + extra.t
      call('ZADD', EXPIRY, extra.e, id)
    end
  end
  lay_down(id, record, payload)
  shelve(SHELF.f, { id })
  reply(id, record, 'f', payload)
  tell('failed', id, record, 'active', nil, kind .. ': ' .. reason)
end

-- Each goes to the front, so the oldest goes last.
for number = #lapsed, 1, -1 do
  local id = lapsed[number]
  call('ZREM', PROCESSING, id)
  local record = load(id)
  if record and record[STATE] == 'a' then
    record[STALLS] = record[STALLS] + 1
    local asked = record[EXTRA] and record[EXTRA].x
    tell('stalled', id, record)
    record[TOKEN] = false
    if asked or record[STALLS] > max_stalls then
      doom(id, record, asked)
      table.insert(doomed, 1, id)
      if record[EXTRA] then retain(SHELF.f, record[EXTRA].f) end
    else
      line_up(id, record, 0, true, true)
      call('HSET', JOBS, id, pack(record))
      table.insert(stalled, 1, id)
    end
  else
    condemn(id, 'active')
  end
end
sweep(500)
call('ZREMRANGEBYSCORE', base .. 'workers', '-inf', now - SEEN_MS)
flush_events()
return { wait, stalled, doomed }

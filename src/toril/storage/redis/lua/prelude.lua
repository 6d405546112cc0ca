-- Shared by all scripts of the lean layout; put in front of each of them.
-- KEYS[1] is the base of the queue's keys, `{jq:<queue>}:`; all of them hash to its slot.
-- ARGV[1] is 0, for the server's clock, or the ms that tests want it to be.
--
-- meta        hash    layout, paused, concurrency, rate_max, rate_ms, window_end, window_used,
--                     reaped (last pass), events_kept, e (events so far), t (tickets so far), stale
-- jobs        hash    id -> record, see below
-- specs       hash    id -> name, payload and terms, packed by the client, opaque here
-- results     hash    id -> result, or packed failure {kind, reason, stack, stack, ...}
-- progress    hash    id -> JSON text
-- queue       list    "<ticket>:<id>", next to run on the left; a ticket that is not the
--                     record's is stale and skipped
-- prioritized zset    id by priority * 2^32 + ticket
-- delayed     zset    id by due ms * 4096 + tie
-- processing  zset    id by end of its lease; the fraction keeps those of one claim in order
-- completed   zset    id by finish ms; the fraction keeps those of one ms in order
-- failed      zset    the same
-- expiry      zset    id by the ms its record is forgotten
-- workers     zset    worker id by the ms it was last seen
-- dedup:<key> string  "<until ms, 0 = until finished>:<job id>"
-- logs:<id>   list    log lines
-- events      stream  id = number of the entry's last event; field e = packed events
-- wake        list    one element while there may be work nobody was told of
-- reply:<who> list    packed endings for a client that waits
-- broken      hash    id -> the bytes that should have been its record

local base = KEYS[1]

local call = redis.call

local pack = cmsgpack.pack

local unpack_msg = cmsgpack.unpack

local now = tonumber(ARGV[1])
if now == 0 then
  local clock = call('TIME')
  now = clock[1] * 1000 + math.floor(clock[2] / 1000)
end

local JOBS = base .. 'jobs'

local SPECS = base .. 'specs'

local RESULTS = base .. 'results'

local QUEUE = base .. 'queue'

local PRIORITIZED = base .. 'prioritized'

local DELAYED = base .. 'delayed'

local PROCESSING = base .. 'processing'

local META = base .. 'meta'

local SHELF = { c = base .. 'completed', f = base .. 'failed' }

local EXPIRY = base .. 'expiry'

local PROGRESS = base .. 'progress'

local WAKE = base .. 'wake'

local GHOST_MS, REPLY_MS, SEEN_MS, BIG = 60000, 3600000, 30000, 65536
local TIE, PRIORITY = 4096, 4294967296

-- A worker is its id, and its name after a newline if it has one.

-- A record: the fields of the array that `jobs` holds.
local STATE, TICKET, CREATED, MADE, STARTED, STALLS = 1, 2, 3, 4, 5, 6
local TOKEN, SETTLED, WORKER, SINCE, PROCESSED, ORIGIN, NAME, EXTRA = 7, 8, 9, 10, 11, 12, 13, 14
-- state: w waiting, p prioritized, d delayed, a active, c completed, f failed, g ghost (forgotten,
-- its ending is kept for those who wait)
-- extra: false or {p priority, l lifo, t result ttl, c/f keep {count, age}, k dedup key,
--        u dedup ttl, x cancel asked, r reply lists, g keep logs, h has logs, e expires, d due, z ended}

local WORDS = { w = 'waiting', p = 'prioritized', d = 'delayed', a = 'active', c = 'completed',
                f = 'failed' }

-- Writes are gathered and sent once per command: a call with many members costs little more.
local jobs_out = {}

local results_out = {}

local pushes = {}

local function put(id, record)
  jobs_out[#jobs_out + 1] = id
  jobs_out[#jobs_out + 1] = pack(record)
end

local function flush(command, key, list)
  local size = #list
  if size == 0 then return end
  for first = 1, size, 4000 do
    call(command, key, unpack(list, first, math.min(first + 3999, size)))
  end
end

local function is_gone(record)
  local extra = record[EXTRA]
  return record[STATE] == 'g' or (extra and extra.e and extra.e <= now)
end

-- Read a record; nil for bytes that are none, which must not stop the script half way.
local function decode(raw)
  local fine, record = pcall(unpack_msg, raw)
  if fine and type(record) == 'table' and record[EXTRA] ~= nil and type(record[STATE]) == 'string'
     and type(record[MADE]) == 'number' and type(record[STARTED]) == 'number'
     and type(record[STALLS]) == 'number' then
    return record
  end
end

local function load(id)
  local raw = call('HGET', JOBS, id)
  return raw and decode(raw)
end

local function extra_of(record)
  if not record[EXTRA] then record[EXTRA] = {} end
  return record[EXTRA]
end

-- Events -------------------------------------------------------------------------------------

local events = {}

-- One event: kind, id, attempt, name, worker, previous state, and two fields whose meaning
-- depends on the kind. Packed one by one: a table is dear to pack.
local function tell(kind, id, record, prev, x, y)
  local attempt, name, worker = false, false, false
  if record then
    attempt, name, worker = record[MADE], record[NAME], record[WORKER]
    if record[STATE] == 'a' then attempt = attempt + 1 end
  end
  if x == nil then x = false end
  if y == nil then y = false end
  events[#events + 1] = pack(kind, id, attempt, name, worker, prev or false, x, y)
end

-- The entry is {now, {all fields of all events}}, put together by hand from what is packed.
local function write_events(count)
  local last = call('HINCRBY', META, 'e', count)
  local kept = tonumber(call('HGET', META, 'events_kept') or 200000)
  local exact = kept < 10000 and '=' or '~'
  local fields = 8 * count
  local size = string.char(221, 0, math.floor(fields / 65536), math.floor(fields / 256) % 256,
                           fields % 256)
  call('XADD', base .. 'events', 'MINID', exact, math.max(0, last - kept + 1), last .. '-0',
       'e', '\146' .. pack(now) .. size .. table.concat(events))
end

local function flush_events()
  if #events > 0 then write_events(#events) end
end

-- Lines --------------------------------------------------------------------------------------

local tickets_left, next_ticket = 0, 0

-- Tickets are taken from the store in blocks; those left over are never used.
local function ticket()
  if tickets_left == 0 then
    tickets_left = 64
    next_ticket = call('HINCRBY', META, 't', 64) - 64
  end
  tickets_left = tickets_left - 1
  next_ticket = next_ticket + 1
  return next_ticket
end

local function tie(key, ms)
  local low, high = ms * TIE, (ms + 1) * TIE - 1
  local top = call('ZREVRANGEBYSCORE', key, high, low, 'WITHSCORES', 'LIMIT', 0, 1)
  return top[2] and math.min(tonumber(top[2]) + 1, high) or low
end

local function score(number)
  return string.format('%.0f', number)
end

-- Finish times of one ms are told apart by a fraction that counts up. Three digits: a score is
-- a double, and a time in ms leaves it no more.
local function shelve(shelf, ids)
  local at = call('ZCOUNT', shelf, now, '(' .. score(now + 1))
  local stem, members = score(now) .. '.', {}
  for number = 1, #ids do
    members[2 * number - 1] = stem .. math.min(100 + at + number, 999)
    members[2 * number] = ids[number]
  end
  flush('ZADD', shelf, members)
end

local rung = false

-- Leave word that there may be work; whoever pops it must claim.
local function ring()
  if rung then return end
  rung = true
  if call('LLEN', WAKE) == 0 then call('RPUSH', WAKE, '1') end
end

-- Let a job wait for a worker; gathers pushes to the back of the plain line.
local function enter(id, record, front, ignore_priority)
  local extra = record[EXTRA]
  if extra then extra.d = nil end
  local number = ticket()
  record[TICKET] = number
  record[SINCE] = now
  if extra and extra.p and not ignore_priority then
    record[STATE] = 'p'
    if front then number = 0 end
    call('ZADD', PRIORITIZED, score(extra.p * PRIORITY + number), id)
  else
    record[STATE] = 'w'
    local entry = number .. ':' .. id
    if front then
      call('LPUSH', QUEUE, entry)
    else
      pushes[#pushes + 1] = entry
    end
  end
  ring()
end

local function delay(id, record, due)
  record[STATE] = 'd'
  record[SINCE] = now
  extra_of(record).d = due
  local first = call('ZRANGE', DELAYED, 0, 0, 'WITHSCORES')
  local mine = tie(DELAYED, due)
  call('ZADD', DELAYED, score(mine), id)
  if not first[2] or mine < tonumber(first[2]) then ring() end
end

-- Put a job where its delay and priority ask for, and say so.
local function line_up(id, record, wait, front, ignore_priority)
  local prev = record[STARTED] > 0 and WORDS[record[STATE]]
  if wait > 0 then
    delay(id, record, now + wait)
    tell('delayed', id, record, prev, wait)
  else
    enter(id, record, front, ignore_priority)
    tell('waiting', id, record, prev)
  end
end

-- Take a pending job out of its line; in the plain one its entry stays and is stale.
local function leave(id, record)
  local state = record[STATE]
  if state == 'w' then
    call('HINCRBY', META, 'stale', 1)
  elseif state == 'p' then
    call('ZREM', PRIORITIZED, id)
  elseif state == 'd' then
    call('ZREM', DELAYED, id)
  end
  record[TICKET] = 0
end

-- Endings ------------------------------------------------------------------------------------

-- Tell those who wait for the job how it ended.
local function reply(id, record, kind, payload)
  local extra = record[EXTRA]
  if not extra or not extra.r then return end
  if payload and #payload > BIG then payload = false end
  local message = pack({ id, kind, payload or false })
  for _, who in ipairs(extra.r) do
    local key = base .. 'reply:' .. who
    call('RPUSH', key, message)
    call('PEXPIRE', key, REPLY_MS)
  end
end

local function release_key(id, record)
  local extra = record[EXTRA]
  local key = extra and extra.k and (base .. 'dedup:' .. extra.k)
  if not key then return end
  local hold = call('GET', key)
  local colon = hold and string.find(hold, ':', 1, true)
  if colon and string.sub(hold, colon + 1) == id then
    local state = record[STATE]
    local pending = state == 'w' or state == 'p' or state == 'd'
    -- A key with a time to live outlives its job, unless the job never ran.
    if string.sub(hold, 1, colon - 1) == '0' or pending then call('DEL', key) end
  end
end

-- Delete a job that is not active, with everything that belongs to it.
local function forget(id, record)
  release_key(id, record)
  local state = record[STATE]
  if SHELF[state] then
    call('ZREM', SHELF[state], id)
    call('ZREM', EXPIRY, id)
  elseif state == 'g' then
    call('ZREM', EXPIRY, id)
  else
    leave(id, record)
  end
  call('HDEL', JOBS, id)
  call('HDEL', SPECS, id)
  call('HDEL', RESULTS, id)
  local extra = record[EXTRA]
  if record[PROCESSED] > 0 then
    call('HDEL', PROGRESS, id)
    if extra and extra.h then call('DEL', base .. 'logs:' .. id) end
  end
end

-- Forget a job, but keep word of its end for a minute if somebody waits for it.
local function bury(id, record, kind, payload)
  local extra = record[EXTRA]
  local waited = extra and extra.r
  local settled = record[SETTLED]
  forget(id, record)
  if waited then
    local ghost = { 'g', 0, now, 0, 0, 0, false, settled, false, now, 0, '', '',
                    { e = now + GHOST_MS, z = { kind, payload or false } } }
    call('HSET', JOBS, id, pack(ghost))
    call('ZADD', EXPIRY, now + GHOST_MS, id)
  end
end

-- Forget what is past its time, at most `limit` of it.
local function sweep(limit)
  for _, id in ipairs(call('ZRANGEBYSCORE', EXPIRY, '-inf', now, 'LIMIT', 0, limit)) do
    local record = load(id)
    if record then forget(id, record) else call('ZREM', EXPIRY, id) end
  end
end

-- Apply the retention a finished job asks for, to itself and to its elders.
local function retain(shelf, rule)
  if not rule then return end
  local count, age = rule[1], rule[2]
  local elders = {}
  if count then
    local over = call('ZCARD', shelf) - count
    if over > 0 then elders = call('ZRANGE', shelf, 0, math.min(over, 100) - 1) end
  end
  if age then
    local limit = '(' .. score(now - age + 1)
    for _, id in ipairs(call('ZRANGEBYSCORE', shelf, '-inf', limit, 'LIMIT', 0, 100)) do
      elders[#elders + 1] = id
    end
  end
  for _, id in ipairs(elders) do
    local record = load(id)
    if record then
      local kind = record[STATE]
      bury(id, record, kind, call('HGET', RESULTS, id))
    end
  end
end

-- End a job whose record nobody can read: it has failed, and its bytes are kept.
local function condemn(id, prev)
  local raw = call('HGET', JOBS, id)
  if not raw or decode(raw) then return end
  local reason = 'its record is unreadable; the bytes are kept in the hash "broken"'
  local record = { 'f', 0, now, 1, 0, 0, false, false, false, now, 0, '', '', false }
  call('HSET', base .. 'broken', id, raw)
  call('HSET', JOBS, id, pack(record))
  call('HSET', RESULTS, id, pack({ 'SerdeError', reason }))
  shelve(SHELF.f, { id })
  tell('failed', id, record, prev, nil, 'SerdeError: ' .. reason)
end

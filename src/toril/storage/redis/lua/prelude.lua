-- Shared by all scripts of the lean layout; put in front of each of them.
-- KEYS[1] is the base of the queue's keys, `{jq:<queue>}:`; all of them hash to its slot.
-- ARGV[1] is 0, for the server's clock, or the ms that tests want it to be.
--
-- meta        hash    layout, paused, concurrency, rate_max, rate_ms, window_end, window_used,
--                     reaped (last pass), events_kept, e (events so far), t (tickets so far)
-- jobs        hash    id -> record of a job that has not ended, see below
-- ended       hash    id -> record of one that has, its result or failure if that is short, and in two
--                     bytes how long it is; apart from `jobs`, so that many that are kept, and a
--                     table that doubles, cost those that run little
-- specs       hash    id -> name, payload and terms, packed by the client, opaque here
-- results     hash    id -> result, or packed failure {kind, reason, stack, stack, ...}, of those that
--                     ended, if it is longer than SHORT or empty, and the failure of those that
--                     are tried again
-- progress    hash    id -> JSON text
-- queue       list    "<ticket>:<id>", next to run on the left; a ticket that is not the
--                     record's is stale and skipped
-- stale       set     the stale entries in that list
-- prioritized zset    id by priority * 2^32 + ticket
-- delayed     zset    id by due ms * 4096 + tie
-- processing  zset    id by end of its lease; the fraction keeps those of one claim in order
-- completed   zset    id by finish ms; the fraction keeps those of one ms in order
-- failed      zset    the same
-- expiry      zset    id by the ms its record is forgotten
-- workers     zset    worker id by the ms it was last seen
-- dedup:<key> string  "<until ms, 0 = until finished>:<job id>"
-- logs:<id>   list    log lines
-- events      stream  id = number of the entry's last event; field e = packed events, see `tell`
-- wake        list    one element while there may be work nobody was told of
-- reply:<who> list    packed endings for a client that waits: {id, kind, payload, origin}
-- once:<call> string  what a call was answered, for a minute, in case it is repeated
-- broken      hash    id -> the bytes that should have been its record, or its spec if there are none

local base = KEYS[1]

local call = redis.call

local pack = cmsgpack.pack

local unpack_msg = cmsgpack.unpack

local unpack_some = cmsgpack.unpack_limit

local now = tonumber(ARGV[1])
if now == 0 then
  local clock = call('TIME')
  now = clock[1] * 1000 + math.floor(clock[2] / 1000)
end

local JOBS = base .. 'jobs'

local ENDED = base .. 'ended'

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

local STALE = base .. 'stale'

local GHOST_MS, REPLY_MS, SEEN_MS, BIG, SHORT = 60000, 3600000, 30000, 65536, 1024
local TIE, PRIORITY, EVENTS_KEPT = 4096, 4294967296, 200000

-- A worker is its id, and its name after a newline if it has one.

-- A record: the fields of the array that `jobs` and `ended` hold.
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

local ended_out = {}

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

-- Read a record; nil for bytes that are none, which must not stop the script half way.
local function decode(raw)
  local fine, _, record = pcall(unpack_some, raw, 1)
  if fine and type(record) == 'table' and record[EXTRA] ~= nil and type(record[STATE]) == 'string'
     and type(record[MADE]) == 'number' and type(record[STARTED]) == 'number'
     and type(record[STALLS]) == 'number' then
    return record
  end
end

-- Read a record without a table, which would cost more than all else: where its last three fields
-- (origin, name, extra) begin, then its fields. Raises, or gives too few, for bytes that are none.
local function scan(raw)
  if string.byte(raw) ~= 158 then return end
  local at, state, ticket, created, made, started, stalls, token, settled, worker, since, processed =
    unpack_some(raw, 11, 1)
  local _, origin, name, extra = unpack_some(raw, 3, at)
  return at, state, ticket, created, made, started, stalls, token, settled, worker, processed, name,
         extra
end

-- What stands in `ended` behind a record whose payload has this size, and whether the payload comes
-- between the two.
local function close_with(size)
  if size == 0 or size > SHORT then return '\000\000', false end
  return string.char(math.floor(size / 256), size % 256), true
end

-- Take apart what stands in `ended`: the record, and the payload or false.
local function open_up(raw)
  local high, low = string.byte(raw, -2, -1)
  local size = low and high * 256 + low or 0
  return string.sub(raw, 1, -3 - size), size > 0 and string.sub(raw, -2 - size, -3)
end

-- Events -------------------------------------------------------------------------------------

local events, told = {}, 0

-- How many events are kept, once it was read.
local kept = false

-- One event: kind, id, attempt, name, worker, previous state, and two fields whose meaning
-- depends on the kind. Packed one by one: a table of all would be dear to pack.
local function tell(kind, id, record, prev, x, y)
  local attempt, name, worker = false, false, false
  if record then
    attempt, name, worker = record[MADE], record[NAME], record[WORKER]
    if record[STATE] == 'a' then attempt = attempt + 1 end
  end
  if x == nil then x = false end
  if y == nil then y = false end
  events[#events + 1] = pack(kind, id, attempt, name, worker, prev or false, x, y)
  told = told + 1
end

-- Events alike but for their ids, as one: an array of kinds, an array of ids, then the other six
-- fields, packed. Each id has an event of each kind, and then comes the next id.
local function tell_alike(kinds, ids, rest)
  if #ids == 0 then return end
  events[#events + 1] = pack(kinds, ids) .. rest
  told = told + #kinds * #ids
end

-- The entry is {now, {all fields of all events}}, put together by hand from what is packed.
-- Returns true if the queue is not in the list of queues, because everything was deleted.
local function write_events()
  local last = call('HINCRBY', META, 'e', told)
  local meta = kept and { kept, true } or call('HMGET', META, 'events_kept', 'layout')
  kept = tonumber(meta[1] or EVENTS_KEPT)
  local exact = kept < 10000 and '=' or '~'
  local fields = 8 * #events
  local size = string.char(221, 0, math.floor(fields / 65536), math.floor(fields / 256) % 256,
                           fields % 256)
  call('XADD', base .. 'events', 'MINID', exact, math.max(0, last - kept + 1), last .. '-0',
       'e', '\146' .. pack(now) .. size .. table.concat(events))
  return not meta[2]
end

local function flush_events()
  if told > 0 then write_events() end
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

local function score(number)
  return string.format('%.0f', number)
end

-- Write scores in one go: a whole number of ms and three digits that count up from `first` to 999 at
-- most, then the member. Put together from digits, which costs a fourth of `string.format`.
local function spread(ms, first, ids)
  local digits = { [0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9' }
  local form, stem, members, high = score(ms) .. '.', '', {}, -1
  for number = 1, #ids do
    local count = math.min(first + number, 999)
    local low = count % 10
    if count - low ~= high then
      high = count - low
      stem = form .. high / 10
    end
    members[2 * number - 1], members[2 * number] = stem .. digits[low], ids[number]
  end
  return members
end

-- Finish times of one ms are told apart by a fraction that counts up. Three digits: a score is
-- a double, and a time in ms leaves it no more.
local function shelve(shelf, ids)
  local at = call('ZCOUNT', shelf, now, '(' .. score(now + 1))
  flush('ZADD', shelf, spread(now, 100 + at, ids))
end

local rung = false

-- Leave word that there may be work; whoever pops it must claim.
local function ring()
  if rung then return end
  rung = true
  if call('LLEN', WAKE) == 0 then call('RPUSH', WAKE, '1') end
end

-- Endings ------------------------------------------------------------------------------------

-- Tell those who wait for the job how it ended.
local function reply(id, record, kind, payload)
  local extra = record[EXTRA]
  if not extra or not extra.r then return end
  if payload and #payload > BIG then payload = false end
  local message = pack({ id, kind, payload or false, record[ORIGIN] })
  for _, who in ipairs(extra.r) do
    local key = base .. 'reply:' .. who
    call('RPUSH', key, message)
    call('PEXPIRE', key, REPLY_MS)
  end
end

-- Complete plain jobs and hand out plain ones, as moveToFinished and moveToActive do one by one,
-- if the queue is plain too: not paused, no bounds, no delayed job due, nobody with a priority
-- before the end of the line. From the first that is not plain, all is left untouched for the
-- official scripts, so that things happen in the order in which they would do them.
-- ARGV[2]  lease in ms      ARGV[3]  name of the worker
-- ARGV[4]  stem of the tokens: the n-th job handed out gets the lock `<stem><n>`
-- ARGV[5]  how many to hand out at most
-- ARGV[6]  how long an ending stays readable, in ms
-- ARGV[7], ARGV[8]  '' or the last of the jobs in the call before and its token: while that lock
--          is there, these jobs are left too
-- ARGV[9]  how many minutes of metrics are kept, or ''
-- ARGV[10…] id, token, result, '1' if the job is kept, keep time in ms or '', packed ending or ''
-- Returns {flags, more, next due or -1, id and FIELDS of each job that was handed out …}: '1' for each
-- job that was completed, '0' for each that was left; more is 1 where the official scripts may find
-- jobs to hand out, 2 if the queue is paused or has bounds
-- Events: completed, active, drained
local lease, worker, stem, want = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local wait, active, prioritized = base .. 'wait', base .. 'active', base .. 'prioritized'
local events, delayed = base .. 'events', base .. 'delayed'
local flags, reply, handed = {}, {'', 0, 0}, 0
local attributes = call('HMGET', base .. 'meta', 'paused', 'concurrency', 'max')
local plain = not attributes[1] and not attributes[2] and not attributes[3]
local bound = not plain
if ARGV[7] ~= '' and call('GET', base .. ARGV[7] .. ':lock') == ARGV[8] then plain = false end
local due = call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
local next_due = due[2] and tonumber(due[2]) or -1
if want > 0 and next_due >= 0 and next_due < (now + 1) * 0x1000 then plain = false end
local open = plain
local more = want > 0 and not plain

-- What concerns all jobs alike is asked before the first and written after the last, in one call
-- each. What may fail on a key of another type is a pcall: an error in between would lose the rest.
local jobs, lock_keys, locks, tied, oldest = {}, {}, {}, false, {}
local out, free, ended, completed, gone = {}, {}, {}, {}, {}
local line = plain and want > 0 and call('LRANGE', wait, -want, -1) or {}
-- A user who may not take jobs is told so before anything is written.
if #line > 0 then call('RPOP', wait, 0) end
local running, popped = plain and call('LLEN', active) or 0, 0
if plain and #ARGV > 9 then
  local tie_keys, number = {}, 0
  for at = 10, #ARGV, 6 do
    local job = base .. ARGV[at]
    number = number + 1
    jobs[number], lock_keys[number] = job, job .. ':lock'
    tie_keys[2 * number - 1], tie_keys[2 * number] = job .. ':dependencies', job .. ':unsuccessful'
  end
  locks = call('MGET', unpack(lock_keys))
  tied = call('EXISTS', unpack(tie_keys)) > 0
  oldest = call('LRANGE', active, -number, -1)
end

local function is_drained()
  return handed == 0 and running == 0
    and call('LLEN', wait) == 0 and call('ZCARD', prioritized) == 0
end

-- Jobs mostly end in the order in which they started: then they need not be looked for.
local function leave_active(id)
  if oldest[#oldest - popped] == id then
    popped = popped + 1
  elseif call('LREM', active, -1, id) == 0 then
    return false
  else
    for at, one in ipairs(oldest) do
      if one == id then
        table.remove(oldest, at)
        break
      end
    end
  end
  running = running - 1
  return true
end

local function hand_out()
  local id = line[#line - handed]
  if not id then
    if call('ZCARD', prioritized) > 0 then more = true else call('DEL', base .. 'pc') end
    return false
  end
  if string.sub(id, 1, 2) == '0:' then
    more = true
    return false
  end
  local job = base .. id
  local fields = redis.pcall('HMGET', job, 'name', 'data', 'opts', 'timestamp', 'priority',
    'ats', 'atm', 'stc', 'attemptsMade', 'defa', 'rjk', 'toril-w')
  if fields.err then
    more = true
    return false
  end
  local started = '1'
  if fields[6] then
    local count = string.match(fields[6], '^%d+$') and #fields[6] < 16 and tonumber(fields[6])
    if not count then
      fields[10] = 'broken record: ats is no whole number'
      call('HSET', job, 'toril-broken-ats', fields[6], 'defa', fields[10])
    end
    started = string.format('%d', (count or 0) + 1)
  end
  fields[6] = started
  handed = handed + 1
  call('SET', job .. ':lock', stem .. handed, 'PX', lease)
  call('XADD', events, '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
  call('HSET', job, 'processedOn', ARGV[1], 'pb', worker, 'ats', started)
  out[handed] = id
  local place = 13 * handed - 9
  reply[place] = id
  for at = 1, 12 do reply[place + at] = fields[at] end
  return true
end

local function complete(number, at)
  local id, job, result = ARGV[at], jobs[number], ARGV[at + 2]
  if gone[id] or locks[number] ~= ARGV[at + 1] then return false end
  local ties = redis.pcall('HMGET', job, 'parentKey', 'deid', 'defa', 'toril-w', 'timestamp', 'atm')
  if ties.err or not ties[5] or ties[1] or ties[2] or ties[3] then return false end
  if tied and call('EXISTS', job .. ':dependencies', job .. ':unsuccessful') > 0 then
    return false
  end
  if not leave_active(id) then return false end
  free[number], ended[number], gone[id] = lock_keys[number], id, true
  local kept, ttl, ending = ARGV[at + 3], ARGV[at + 4], ARGV[at + 5]
  if ending ~= '' and (ties[4] or private_of(id)['w']) then
    call('SET', base .. 'toril-end:' .. id, ending, 'PX', ARGV[6])
  end
  if kept == '1' then
    if ttl ~= '' then call('ZADD', base .. 'toril-ttl', now + tonumber(ttl), id) end
    completed[#completed + 1] = ARGV[1]
    completed[#completed + 1] = id
    local made = ties[6] and string.format('%d', (tonumber(ties[6]) or 0) + 1) or '1'
    call('HSET', job, 'atm', made, 'returnvalue', result, 'finishedOn', ARGV[1])
  else
    call('DEL', job, job .. ':logs', job .. ':processed', job .. ':failed')
  end
  call('XADD', events, '*', 'event', 'completed', 'jobId', id, 'returnvalue', result,
    'prev', 'active')
  return true
end

-- How many jobs were completed in each minute, newest first; of a running minute nothing is told.
local function count_completed(number, most)
  local key = base .. 'metrics:completed'
  local before = call('HINCRBY', key, 'count', number) - number
  local last = call('HMGET', key, 'prevTS', 'prevCount')
  if not last[1] then return call('HSET', key, 'prevTS', ARGV[1], 'prevCount', 0) end
  local minutes = math.min(math.floor(now / 60000) - math.floor(last[1] / 60000), most)
  if minutes <= 0 then return end
  call('LPUSH', key .. ':data', before - last[2])
  for _ = 2, minutes do call('LPUSH', key .. ':data', 0) end
  call('LTRIM', key .. ':data', 0, most - 1)
  call('HSET', key, 'prevCount', before, 'prevTS', ARGV[1])
end

if plain and #ARGV > 9 then call('XTRIM', events, 'MAXLEN', '~', max_events()) end
for at = 10, #ARGV, 6 do
  local number = (at - 4) / 6
  plain = plain and complete(number, at)
  if plain then
    local asked = handed < want
    if asked and open then open = hand_out() end
    -- One who asks for a job, and gets it or hears of a delayed one, looks no further.
    if not (asked and (open or more or next_due >= 0)) and is_drained() then
      call('XADD', events, '*', 'event', 'drained')
    end
  end
  flags[number] = plain and '1' or '0'
end
if not plain then more = handed < want end
while plain and open and handed < want do open = hand_out() end
if popped > 0 then call('RPOP', active, popped) end
if #free > 0 then
  call('DEL', unpack(free))
  call('SREM', base .. 'stalled', unpack(ended))
  if ARGV[9] ~= '' then count_completed(#free, tonumber(ARGV[9])) end
end
if #completed > 0 then call('ZADD', base .. 'completed', unpack(completed)) end
if handed > 0 then
  call('RPOP', wait, handed)
  call('LPUSH', active, unpack(out))
  ring()
end
reply[1], reply[2] = table.concat(flags), bound and 2 or more and 1 or 0
reply[3] = math.floor(next_due / 0x1000)
return reply

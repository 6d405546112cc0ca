-- Complete plain jobs and hand out plain ones, as moveToFinished and moveToActive do one by one,
-- if the queue is plain too: neither paused nor bounded. Delayed jobs that are due are put in line
-- before a job is handed out; those with a priority follow when the line is empty. From the first
-- that is not plain, all is left untouched for the official scripts, so that things happen in the
-- order in which they would do them.
-- ARGV[1]  the time as in the prelude, or -1 for a claim that was left here to run when there is work
-- ARGV[2]  lease in ms      ARGV[3]  name of the worker
-- ARGV[4]  stem of the tokens: the first job handed out gets the lock `<stem>a`, the next `<stem>b`
-- ARGV[5]  how many to hand out at most
-- ARGV[6]  how long an ending stays readable, in ms
-- ARGV[7], ARGV[8]  '' or the last of the jobs in the call before and its token: while that lock
--          is there, these jobs are left too
-- ARGV[9]  how many minutes of metrics are kept, or ''
-- ARGV[10] '1' for each job that ended and had the usual fields only when it started, else '0'
-- ARGV[11] how many values there are for each of these jobs: 3 if all are kept for good, else 7
-- ARGV[12] these values, packed: id, token, result; then '1' if the job is kept, keep time in ms or
--          '', packed ending or '', '1' if its options ask for the ending
-- Returns {how many were completed, more, next due or -1, packed values of the jobs handed out, the
-- time}: more is 1 where the official scripts may find jobs to hand out, 2 if the queue is paused or
-- has bounds. One packed text costs the server less than the many that are in it.
-- Of a bare job, which has the usual fields only and so starts for the first time, there are id,
-- name, data, opts, timestamp and priority; of any other one id, all fields in a list, four times ''
-- Events: completed, waiting, active, drained
local left_here, lines = now < 0, 0
if left_here then
  lines = call('EXISTS', base .. 'wait', base .. 'prioritized', base .. 'delayed', base .. 'pc')
  -- Its time ran out, with nothing there to wait for.
  if lines == 0 then return {0, 0, -1, cmsgpack.pack({}), 0} end
  local clock = call('TIME')
  now = clock[1] * 1000 + math.floor(clock[2] / 1000)
  stamp = string.format('%.0f', now)
end
local try, byte = redis.pcall, string.byte
local lease, worker, stem, want = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local wait, active, events = base .. 'wait', base .. 'active', base .. 'events'
local attributes = call('HMGET', base .. 'meta', 'paused', 'concurrency', 'max', 'opts.maxLenEvents')
local plain = not attributes[1] and not attributes[2] and not attributes[3]
local bound = not plain
if ARGV[7] ~= '' and call('GET', base .. ARGV[7] .. ':lock') == ARGV[8] then plain = false end
local values, line = {}, plain and want > 0 and call('LRANGE', wait, -want, -1) or {}
local first = #line
-- With one line there is nothing but what waits in it; who asks for nothing needs no other.
local only = lines == 1 and first > 0

-- Note what is told of a job, if it has the usual fields only; tell whether it has.
local function is_bare(id, job, place)
  if try('HLEN', job) ~= 6 then return false end
  local name, data, opts, timestamp, priority, delay =
    unpack(call('HMGET', job, 'name', 'data', 'opts', 'timestamp', 'priority', 'delay'))
  if not (name and data and opts and timestamp and priority and delay) then return false end
  values[place], values[place + 1], values[place + 2] = id, name, data
  values[place + 3], values[place + 4], values[place + 5] = opts, timestamp, priority
  return true
end

-- Mostly one job wakes a claim that was left here, and nothing of what follows is made for it.
if only and first == 1 then
  local id = line[1]
  local job = base .. id
  if not (byte(id) == 48 and byte(id, 2) == 58) and is_bare(id, job, 1) then
    call('RPOPLPUSH', wait, active)
    call('SET', job .. ':lock', stem .. 'a', 'PX', lease)
    call('XADD', events, '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
    call('HSET', job, 'processedOn', stamp, 'pb', worker, 'ats', '1')
    if want == 1 then ring() end
    return {0, 0, -1, cmsgpack.pack(values), now}
  end
end

local bare, size, count = ARGV[10], tonumber(ARGV[11]), #ARGV[10]
local args = count > 0 and cmsgpack.unpack(ARGV[12]) or {}
local prioritized, delayed, stalled = base .. 'prioritized', base .. 'delayed', base .. 'stalled'
local function next_score()
  return tonumber(call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or -1)
end
local open = plain
local more = want > 0 and not plain

local char = string.char
local STARTED = 9 -- how many fields a bare job has once it was handed out
local all_bare, ONE = not string.find(bare, '0', 1, true), byte('1')

local function was_bare(number)
  return all_bare or byte(bare, number) == ONE
end

-- What concerns all jobs alike is asked before the first and written after the last, in one call
-- each. What may fail on a key of another type is a pcall: an error in between would lose the rest.
local jobs, lock_keys, locks, leases, tied, oldest = {}, {}, {}, {}, false, {}
local out, completed, timed, gone = {}, {}, {}, {}
local handed, lined, popped, done = 0, 0, 0, 0
-- A user who may not take jobs is told so before anything is written.
if plain and want > 0 then call('RPOP', wait, 0) end
-- Valkey 9.1 sets many locks at once; for users who may not ask it to, they are set one by one.
local together = first > 1 and (redis.VALKEY_VERSION_NUM or 0) >= 0x90100
  and redis.acl_check_cmd('MSETEX', 1, wait .. ':lock', stem, 'PX', lease)
local next_due = (only or want == 0) and -1 or next_score()
local last_due = (now + 1) * 0x1000 - 1
local due = next_due >= 0 and next_due <= last_due
if plain and count > 0 then
  local tie_keys = {}
  for number = 1, count do
    local job = base .. args[1 + (number - 1) * size]
    jobs[number], lock_keys[number] = job, job .. ':lock'
    tie_keys[number] = job .. ':dependencies'
  end
  for number = 1, all_bare and 0 or count do
    if not was_bare(number) then tie_keys[#tie_keys + 1] = jobs[number] .. ':unsuccessful' end
  end
  locks = call('MGET', unpack(lock_keys))
  tied = call('EXISTS', unpack(tie_keys)) > 0
  if count > 1 then oldest = call('LRANGE', active, -count, -1) end
end

local function is_drained()
  if handed > 0 then return false end
  if popped == 0 then return call('EXISTS', active, wait, prioritized) == 0 end
  return call('LLEN', active) == popped and call('EXISTS', wait, prioritized) == 0
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
  return true
end

-- Drop the last entries of a list; what they were is known.
local function drop(list, number)
  call('LTRIM', list, 0, -1 - number)
end

-- Count the start of a job that is not bare, and give its fields as they will be.
local function count_start(job, flat)
  local at = 1
  while flat[at] and flat[at] ~= 'ats' do at = at + 2 end
  local old = flat[at + 1] or '0'
  local number = string.match(old, '^%d+$') and #old < 16 and tonumber(old)
  if not number then
    local doom = 'broken record: ats is no whole number'
    call('HSET', job, 'toril-broken-ats', old, 'defa', doom)
    flat[#flat + 1] = 'defa'
    flat[#flat + 1] = doom
  end
  local started = string.format('%d', (number or 0) + 1)
  flat[at], flat[at + 1] = 'ats', started
  return started
end

-- Put jobs that are due at the end of the line, a thousand at once as the official scripts do; tell
-- whether it could be done. What may fail comes before the first write.
local function promote()
  local ids = call('ZRANGEBYSCORE', delayed, 0, last_due, 'LIMIT', 0, 1000)
  due = #ids == 1000
  if #ids == 0 then return true end
  local priorities, behind, ranked = {}, {}, {}
  for number, id in ipairs(ids) do
    local priority = try('HGET', base .. id, 'priority')
    if type(priority) == 'table' then return false end
    priorities[number] = tonumber(priority) or 0
  end
  for number, id in ipairs(ids) do
    if priorities[number] == 0 then
      behind[#behind + 1] = id
    else
      local turn = try('INCR', base .. 'pc')
      if type(turn) == 'table' then return false end
      ranked[#ranked + 1] = priorities[number] * 0x100000000 + turn % 0x100000000
      ranked[#ranked + 1] = id
    end
  end
  call('ZREM', delayed, unpack(ids))
  for _, id in ipairs(ids) do
    call('XADD', events, '*', 'event', 'waiting', 'jobId', id, 'prev', 'delayed')
    call('HSET', base .. id, 'delay', '0')
  end
  if #ranked > 0 then call('ZADD', prioritized, unpack(ranked)) end
  if #behind > 0 then
    call('LPUSH', wait, unpack(behind))
    line = call('LRANGE', wait, -want, -1)
    first = #line
  end
  ring()
  next_due = next_score()
  return true
end

local function hand_out()
  if due and not promote() then
    more = true
    return false
  end
  local waited = line[first - lined]
  local id = waited or not only and call('ZRANGE', prioritized, 0, 0)[1]
  if not id then
    if not only then call('DEL', base .. 'pc') end
    return false
  end
  if waited and byte(id) == 48 and byte(id, 2) == 58 then -- '0:'
    more = true
    return false
  end
  local job, place, started = base .. id, 6 * handed + 1, '1'
  if not is_bare(id, job, place) then
    local flat = try('HGETALL', job)
    if flat.err then
      more = true
      return false
    end
    started = count_start(job, flat)
    values[place], values[place + 1] = id, flat
    for at = place + 2, place + 5 do values[at] = '' end
  end
  if waited then lined = lined + 1 else call('ZREM', prioritized, id) end
  handed = handed + 1
  -- To write a number costs the server more than to write a letter.
  local lock, token = job .. ':lock', stem .. char(96 + handed)
  if together then
    leases[2 * handed - 1], leases[2 * handed] = lock, token
  else
    call('SET', lock, token, 'PX', lease)
  end
  call('XADD', events, '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
  call('HSET', job, 'processedOn', stamp, 'pb', worker, 'ats', started)
  out[handed] = id
  return true
end

-- Keep what is to outlive a job that is not kept for good; tell whether the job itself is kept.
local function outlive(id, at, asked)
  local kept, ttl, ending = args[at + 3], args[at + 4], args[at + 5]
  if ending ~= '' and (asked or args[at + 6] == '1') then
    call('SET', base .. 'toril-end:' .. id, ending, 'PX', ARGV[6])
  end
  if kept == '1' and ttl ~= '' then
    timed[#timed + 1] = now + tonumber(ttl)
    timed[#timed + 1] = id
  end
  return kept == '1'
end

local function complete(number, at)
  local id, job, result = args[at], jobs[number], args[at + 2]
  if gone[id] or locks[number] ~= args[at + 1] then return false end
  local made, asked = '1', false
  -- While a job runs nobody takes a field from it: if there are as many, they are the same. Then
  -- none of its children has failed either: that leaves `defa` beside the member of `unsuccessful`.
  local known = was_bare(number)
  local same = known and try('HLEN', job) == STARTED
  if not same then
    local ties = try('HMGET', job, 'parentKey', 'deid', 'defa', 'toril-w', 'timestamp', 'atm')
    if ties.err or not ties[5] or ties[1] or ties[2] or ties[3] then return false end
    asked = ties[4]
    if ties[6] then made = string.format('%d', (tonumber(ties[6]) or 0) + 1) end
  end
  if (tied or known and not same)
     and call('EXISTS', job .. ':dependencies', job .. ':unsuccessful') > 0 then
    return false
  end
  if not leave_active(id) then return false end
  gone[id] = true
  if size == 3 or outlive(id, at, asked) then
    local place = #completed
    completed[place + 1], completed[place + 2] = stamp, id
    call('HSET', job, 'atm', made, 'returnvalue', result, 'finishedOn', stamp)
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
  if not last[1] then return call('HSET', key, 'prevTS', stamp, 'prevCount', 0) end
  local minutes = math.min(math.floor(now / 60000) - math.floor(last[1] / 60000), most)
  if minutes <= 0 then return end
  call('LPUSH', key .. ':data', before - last[2])
  for _ = 2, minutes do call('LPUSH', key .. ':data', 0) end
  call('LTRIM', key .. ':data', 0, most - 1)
  call('HSET', key, 'prevCount', before, 'prevTS', stamp)
end

if plain and count > 0 then
  call('XTRIM', events, 'MAXLEN', '~', attributes[4] or max_events())
end
for number = 1, count do
  plain = plain and complete(number, 1 + (number - 1) * size)
  if plain then
    done = number
    local asked = handed < want
    if asked and open then open = hand_out() end
    -- One who asks for a job, and gets it or hears of a delayed one, looks no further.
    if not (asked and (open or more or next_due >= 0)) and is_drained() then
      call('XADD', events, '*', 'event', 'drained')
    end
  end
end
if not plain then more = handed < want end
while plain and open and handed < want do open = hand_out() end
if popped > 0 then drop(active, popped) end
if done > 0 then
  call('DEL', unpack(lock_keys, 1, done))
  if call('EXISTS', stalled) == 1 then
    local ids = {}
    for number = 1, done do ids[number] = args[1 + (number - 1) * size] end
    call('SREM', stalled, unpack(ids))
  end
  if ARGV[9] ~= '' then count_completed(done, tonumber(ARGV[9])) end
end
if #timed > 0 then call('ZADD', base .. 'toril-ttl', unpack(timed)) end
if #completed > 0 then call('ZADD', base .. 'completed', unpack(completed)) end
if handed > 0 then
  if together then
    leases[2 * handed + 1], leases[2 * handed + 2] = 'PX', lease
    call('MSETEX', handed, unpack(leases))
  end
  if lined > 0 then drop(wait, lined) end
  call('LPUSH', active, unpack(out))
  -- The marker is for others; a claim that was left here waits again, and took all there was.
  if not left_here or more or handed == want then ring() end
end
more = bound and 2 or more and 1 or 0
return {done, more, math.floor(next_due / 0x1000), cmsgpack.pack(values), now}

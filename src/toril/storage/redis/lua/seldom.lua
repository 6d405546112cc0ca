-- What most calls do without; made when it is first asked for.

local function is_gone(record)
  local extra = record[EXTRA]
  return record[STATE] == 'g' or (extra and extra.e and extra.e <= now)
end

local function load(id)
  local raw = call('HGET', JOBS, id) or call('HGET', ENDED, id)
  return raw and decode(raw)
end

-- Write a record back where it was read.
local function save(id, record)
  local old = call('HGET', ENDED, id)
  if old and (SHELF[record[STATE]] or record[STATE] == 'g') then
    local _, payload = open_up(old)
    call('HSET', ENDED, id, pack(record) .. (payload or '') .. string.sub(old, -2))
  else
    call('HSET', JOBS, id, pack(record))
  end
end

-- Write down a job that ended just now.
local function lay_down(id, record, payload)
  local close, between = close_with(#payload)
  call('HDEL', JOBS, id)
  call('HSET', ENDED, id, pack(record) .. (between and payload or '') .. close)
  if between then call('HDEL', RESULTS, id) else call('HSET', RESULTS, id, payload) end
end

-- The result of a job that ended, or its failure.
local function payload_of(id)
  local raw = call('HGET', ENDED, id)
  local _, payload = open_up(raw or '')
  return payload or call('HGET', RESULTS, id)
end

local function extra_of(record)
  if not record[EXTRA] then record[EXTRA] = {} end
  return record[EXTRA]
end

local function tie(key, ms)
  local low, high = ms * TIE, (ms + 1) * TIE - 1
  local top = call('ZREVRANGEBYSCORE', key, high, low, 'WITHSCORES', 'LIMIT', 0, 1)
  return top[2] and math.min(tonumber(top[2]) + 1, high) or low
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
    call('SADD', STALE, record[TICKET] .. ':' .. id)
  elseif state == 'p' then
    call('ZREM', PRIORITIZED, id)
  elseif state == 'd' then
    call('ZREM', DELAYED, id)
  end
  record[TICKET] = 0
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
  call('HDEL', (SHELF[state] or state == 'g') and ENDED or JOBS, id)
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
    call('HSET', ENDED, id, pack(ghost) .. close_with(0))
    call('ZADD', EXPIRY, now + GHOST_MS, id)
  end
end

-- Forget what is past its time, at most `limit` of it. A user who may only look leaves it, and is
-- told how many finished jobs that are.
local function sweep(limit)
  local left = { c = 0, f = 0 }
  local ids = call('ZRANGEBYSCORE', EXPIRY, '-inf', now, 'LIMIT', 0, limit)
  local may = #ids == 0 or redis.acl_check_cmd('ZREM', EXPIRY, ids[1])
  for _, id in ipairs(ids) do
    local record = load(id)
    if not may then
      local state = record and record[STATE]
      if left[state] then left[state] = left[state] + 1 end
    elseif record then
      forget(id, record)
    else
      call('ZREM', EXPIRY, id)
    end
  end
  return left
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
      bury(id, record, kind, payload_of(id))
    end
  end
end

-- Strike off a job that has no record any more, and keep what else is left of it.
local function miss(id, prev)
  local spec = call('HGET', SPECS, id)
  if spec then call('HSET', base .. 'broken', id, spec) end
  call('HDEL', SPECS, id)
  call('HDEL', RESULTS, id)
  tell('removed', id, nil, prev, nil, 'its record is missing')
end

-- End a job whose record nobody can read: it has failed, and its bytes are kept.
local function condemn(id, prev)
  local raw = call('HGET', JOBS, id) or call('HGET', ENDED, id)
  if not raw then return miss(id, prev) end
  if decode(raw) then return end
  local reason = 'its record is unreadable; the bytes are kept in the hash "broken"'
  local record = { 'f', 0, now, 1, 0, 0, false, false, false, now, 0, '', '', false }
  call('HSET', base .. 'broken', id, raw)
  lay_down(id, record, pack({ 'SerdeError', reason }))
  shelve(SHELF.f, { id })
  tell('failed', id, record, prev, nil, 'SerdeError: ' .. reason)
end

-- The end of a lease; the fraction keeps jobs of one claim in their order.
local function lease_end(lease, number)
  return score(now + lease) .. '.' .. (100 + number)
end

-- Jobs this token holds already: its first grant, whose reply was lost.
local function grant_again(out, token, lease)
  local count, held, specs, facts = 0, out[4], out[5], out[6]
  local ids = call('ZRANGE', PROCESSING, 0, -1)
  for first = 1, #ids, 1000 do
    local some = { unpack(ids, first, math.min(first + 999, #ids)) }
    for number, raw in ipairs(call('HMGET', JOBS, unpack(some))) do
      local record = raw and decode(raw)
      if record and record[STATE] == 'a' and record[TOKEN] == token then
        call('ZADD', PROCESSING, lease_end(lease, count), some[number])
        count = count + 1
        held[count], specs[count] = some[number], call('HGET', SPECS, some[number])
        for _, fact in ipairs({ 1, record[CREATED], record[MADE], record[STARTED], record[STALLS] }) do
          facts[#facts + 1] = fact
        end
      end
    end
  end
  return count
end

local function add_failure(id, failure, shelf)
  local fresh = unpack_msg(failure)
  local kept = call('HGET', RESULTS, id)
  local stacks = {}
  if kept and shelf.made > 0 then
    local old = unpack_msg(kept)
    for number = math.max(3, #old - 8), #old do stacks[#stacks + 1] = old[number] end
  end
  if fresh[3] and fresh[3] ~= '' then stacks[#stacks + 1] = fresh[3] end
  local record = { fresh[1], fresh[2] }
  for _, stack in ipairs(stacks) do record[#record + 1] = stack end
  return pack(record), fresh
end

local function reason_of(failure)
  if failure[2] == '' then return failure[1] end
  return failure[1] .. ': ' .. failure[2]
end

local function promote()
  local limit = score((now + 1) * TIE - 1)
  for _, id in ipairs(call('ZRANGEBYSCORE', DELAYED, '-inf', limit, 'LIMIT', 0, 200)) do
    call('ZREM', DELAYED, id)
    local record = load(id)
    if record then
      enter(id, record, false)
      tell('waiting', id, record, 'delayed')
      call('HSET', JOBS, id, pack(record))
    else
      condemn(id, 'delayed')
    end
  end
  flush('RPUSH', QUEUE, pushes)
  pushes = {}
  local first = call('ZRANGE', DELAYED, 0, 0, 'WITHSCORES')
  if not first[2] then return -1 end
  return math.max(0, math.floor(tonumber(first[2]) / TIE) - now)
end

-- Store each job unless its id or dedup key is taken; never touch the one that is there.
-- ARGV: time, number of jobs, per job: id, spec; then per row of jobs with the same head: head, how
--   many they are; then 1 if each id was made for this call, which is sent for the first time, so that
--   none has ended, else 0
--   head = packed {origin, delay ms, requeue failed, reply list or false, extra or false, name};
--   for a job that only has to wait in the plain line the end of its record: packed origin and
--   name, both short, and extra, which holds the reply list; then true if it may requeue a failed
-- Returns per job: "+s" created in state s, "=s" there already in state s,
--   "~s:id" the dedup key is held by id, in state s ("-": it is gone)
--   and "?" at the end if the queue is not in the list of queues any more;
--   or the number of jobs, if all of them are new in the plain line and nothing else is to say
-- Events: added + waiting|delayed, duplicated, deduplicated, removed

local count = tonumber(ARGV[2])
local first_head = 3 + 2 * count
local answers, specs_out, ids = {}, {}, {}
-- What this call has done to ids so far: the records it made, and which jobs it replaced.
local seen, replaced = {}, {}
for number = 1, count do ids[number] = ARGV[1 + 2 * number] end
local known = call('HMGET', JOBS, unpack(ids))
if ARGV[#ARGV] ~= '1' then
  local past = call('HMGET', ENDED, unpack(ids))
  for number = 1, count do known[number] = known[number] or past[number] end
end

local function write_jobs()
  flush('HSET', JOBS, jobs_out)
  flush('HSET', SPECS, specs_out)
  flush('RPUSH', QUEUE, pushes)
  jobs_out, specs_out, pushes = {}, {}, {}
end

local function add_reply(id, record, who)
  if not who then return end
  local extra = extra_of(record)
  extra.r = extra.r or {}
  for _, other in ipairs(extra.r) do
    if other == who then return end
  end
  extra.r[#extra.r + 1] = who
  save(id, record)
end

-- Answer for the holder of the dedup key, or make room and answer nil.
local function check_dedup(id, head)
  local extra = head[5]
  if not extra or not extra.k then return nil end
  local key = base .. 'dedup:' .. extra.k
  local hold = call('GET', key)
  if not hold then return nil end
  local colon = string.find(hold, ':', 1, true)
  local till, holder = tonumber(string.sub(hold, 1, colon - 1)), string.sub(hold, colon + 1)
  if till > 0 and till <= now then return nil end
  if seen[holder] then write_jobs() end
  local record = load(holder)
  if record and is_gone(record) then record = nil end
  if record and extra.v and record[STATE] == 'd' then
    tell('removed', holder, record, 'delayed')
    reply(holder, record, 'g')
    bury(holder, record, 'g')
    seen[holder], replaced[holder] = nil, true
    return nil
  end
  if extra.y and extra.u then
    call('SET', key, (now + extra.u) .. ':' .. holder, 'PX', extra.u)
  end
  tell('deduplicated', holder, nil, nil, extra.k, id)
  if record then
    add_reply(holder, record, head[4])
    return '~' .. record[STATE] .. ':' .. holder
  end
  return '~-:' .. holder
end

local function create(id, head, spec)
  local extra = head[5]
  if head[4] then
    extra = extra or {}
    extra.r = { head[4] }
  end
  local record = { 'w', 0, now, 0, 0, 0, false, false, false, now, 0, head[1], head[6], extra }
  if extra and extra.k then
    local key = base .. 'dedup:' .. extra.k
    if extra.u then
      call('SET', key, (now + extra.u) .. ':' .. id, 'PX', extra.u)
    else
      call('SET', key, '0:' .. id)
    end
  end
  tell('added', id, record)
  line_up(id, record, head[2], extra and extra.l)
  put(id, record)
  specs_out[#specs_out + 1] = id
  specs_out[#specs_out + 1] = spec
  seen[id] = record
  return '+' .. record[STATE]
end

-- Jobs for the plain line share a ticket: with their ids it tells their entries from all others.
-- Those with the same head share their record, which is put together from bytes, and their events.
local mark, stem, alike, model, rest, twins, plain = false, '', false, '', '', {}, 0

local function close_twins()
  tell_alike({ 'added', 'waiting' }, twins, rest)
  alike, twins = false, {}
end

local function open_twins(head)
  close_twins()
  if not mark then
    local number = ticket()
    mark = string.format('%d:', number)
    stem = '\158\161w' .. pack(number, now, 0, 0, 0, false, false, false, now, 0)
    ring()
  end
  local first = string.byte(head) - 158
  local name = string.sub(head, first, first + string.byte(head, first) - 160)
  alike, rest = head, '\000' .. name .. '\194\194\194\194'
  model = stem .. (string.byte(head, -1) == 195 and string.sub(head, 1, -2) or head)
end

local function create_plain(id, head, spec)
  if head ~= alike then open_twins(head) end
  twins[#twins + 1] = id
  local size = #jobs_out
  jobs_out[size + 1], jobs_out[size + 2] = id, model
  size = #specs_out
  specs_out[size + 1], specs_out[size + 2] = id, spec
  pushes[#pushes + 1] = mark .. id
  seen[id] = model
  plain = plain + 1
  return '+w'
end

-- Most often all jobs of a call are new and alike. Then their arguments are stored as they come.
-- Tells whether it was so; an id that comes twice is found when fewer fields are new than were set.
local function create_all()
  local head = ARGV[first_head]
  if string.byte(head) == 150 or #ARGV > first_head + 2 then return false end
  for number = 1, count do
    if known[number] then return false end
  end
  open_twins(head)
  local records = { unpack(ARGV, 3, first_head - 1) }
  for number = 1, count do
    records[2 * number] = model
    pushes[number] = mark .. ids[number]
  end
  -- The server keeps a small hash of short values as a list, which it scans for each new field. One
  -- value over 64 bytes makes it a table, and a table it stays until it is empty.
  local first = count >= 16 and call('EXISTS', JOBS) == 0
  if first then call('HSET', JOBS, '', string.rep('-', 65)) end
  local fresh = call('HSET', JOBS, unpack(records))
  if first then call('HDEL', JOBS, '') end
  if fresh < count then
    call('HDEL', JOBS, unpack(ids))
    alike, pushes = false, {}
    return false
  end
  call('HSET', SPECS, unpack(ARGV, 3, first_head - 1))
  twins, plain = ids, count
  return true
end

local function hand_in(number, id, head, spec)
  local record, ghost = seen[id], false
  if type(record) == 'string' then record = decode(record) end
  if not record and known[number] and not replaced[id] then
    record = decode(known[number])
    if not record then
      condemn(id)
      record = load(id)
    elseif record[STATE] ~= 'g' and is_gone(record) then
      forget(id, record)
      record = nil
    elseif record[STATE] == 'g' then
      ghost, record = true, nil
    end
  end
  if record then
    if record[ORIGIN] == head[1] and head[1] ~= '' then return '+' .. record[STATE] end
    if not (record[STATE] == 'f' and head[3]) then
      if not seen[id] then
        add_reply(id, record, head[4])
      end
      tell('duplicated', id, record)
      return '=' .. record[STATE]
    end
  end
  local refusal = check_dedup(id, head)
  if refusal then return refusal end
  if record then forget(id, record) end
  if ghost or replaced[id] then
    call('HDEL', ENDED, id)
    call('ZREM', EXPIRY, id)
  end
  return create(id, head, spec)
end

local function create_each()
  local number = 0
  for at = first_head, #ARGV - 1, 2 do
    local head = ARGV[at]
    for _ = 1, tonumber(ARGV[at + 1]) do
      number = number + 1
      local id, spec = ids[number], ARGV[2 + 2 * number]
      if string.byte(head) == 150 then
        close_twins()
        answers[number] = hand_in(number, id, unpack_msg(head), spec)
      elseif known[number] or seen[id] or replaced[id] then
        close_twins()
        local origin, name, extra, requeue = unpack_msg(head)
        local who = extra and extra.r and extra.r[1]
        answers[number] = hand_in(number, id, { origin, 0, requeue, who, extra, name }, spec)
      else
        answers[number] = create_plain(id, head, spec)
      end
    end
  end
end

if not create_all() then create_each() end
close_twins()
write_jobs()
if told > 0 and write_events() then
  for number = #answers + 1, count do answers[number] = '+w' end
  answers[count + 1] = '?'
elseif plain == count then
  return plain
end
return answers

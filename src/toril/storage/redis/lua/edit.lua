-- Change jobs that are not running.
-- ARGV: time, what (promote, priority, delay, data, revive, rerun), value, ids
--   priority: the number · delay: ms from now · data: packed spec · revive: reset attempts (0|1)
--   priority and data come with the new spec of each job after its id; rerun is a revive that
--   comes with the time each job had finished at, and leaves those that have another one now
-- Returns per id: 1 changed, 0 not in a state that allows it
-- Events: waiting, delayed

local what, value, answers = ARGV[2], ARGV[3], {}
local pending = { w = true, p = true, d = true }
local step = (what == 'priority' or what == 'data' or what == 'rerun') and 2 or 1

local function key_is_free(id, record)
  local extra = record[EXTRA]
  if not extra or not extra.k then return true end
  local key = base .. 'dedup:' .. extra.k
  local hold = call('GET', key)
  if hold then
    local colon = string.find(hold, ':', 1, true)
    local till = tonumber(string.sub(hold, 1, colon - 1))
    if (till == 0 or till > now) and string.sub(hold, colon + 1) ~= id then return false end
  end
  if extra.u then
    call('SET', key, (now + extra.u) .. ':' .. id, 'PX', extra.u)
  else
    call('SET', key, '0:' .. id)
  end
  return true
end

local function change(id, record, spec)
  local state = record[STATE]
  if what == 'promote' then
    if state ~= 'd' then return false end
    leave(id, record)
    enter(id, record, false)
    tell('waiting', id, record, 'delayed')
  elseif what == 'priority' then
    if not pending[state] then return false end
    local priority = tonumber(value)
    local extra = extra_of(record)
    local moved = (extra.p or 0) ~= priority
    if moved and state ~= 'd' then leave(id, record) end
    extra.p = priority > 0 and priority or nil
    if moved and state ~= 'd' then enter(id, record, false) end
    call('HSET', SPECS, id, spec)
  elseif what == 'delay' then
    if state ~= 'd' then return false end
    leave(id, record)
    line_up(id, record, math.max(tonumber(value), 1), false)
  elseif what == 'data' then
    if not pending[state] then return false end
    call('HSET', SPECS, id, spec)
    return true
  else
    if not SHELF[state] then return false end
    if what == 'rerun' and record[SINCE] ~= tonumber(spec) then return false end
    if not key_is_free(id, record) then return false end
    call('ZREM', SHELF[state], id)
    call('ZREM', EXPIRY, id)
    call('HDEL', ENDED, id)
    call('HDEL', RESULTS, id)
    local extra = record[EXTRA]
    if extra then extra.e = nil end
    if value == '1' then record[MADE] = 0 end
    enter(id, record, extra and extra.l)
    tell('waiting', id, record, WORDS[state])
  end
  call('HSET', JOBS, id, pack(record))
  return true
end

for at = 4, #ARGV, step do
  local id = ARGV[at]
  local record = load(id)
  local done = record and not is_gone(record) and change(id, record, ARGV[at + 1])
  answers[#answers + 1] = done and 1 or 0
end
flush('RPUSH', QUEUE, pushes)
flush_events()
return answers

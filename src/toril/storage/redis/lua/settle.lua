-- End attempts under their leases, then claim the next jobs.
-- ARGV: time, the outcomes, packed into one array: per outcome kind, id, token, started, a, b
--   c completed: result, "" · f failed: failure, exhausted (0|1) · r retried: failure, delay ms
--   p postponed: delay ms or "", until ms or "" · l released: "", ""
-- then, if more jobs are wanted: the arguments of claim.lua from the token on
-- Returns {answers: one of D done, L lost, G gone per outcome, batch as in claim.lua or false}
-- Events: completed, failed, retries-exhausted, retrying, delayed, waiting, drained, and claim's

local said = unpack_msg(ARGV[2])
local count = #said / 6
local answers, done, shelved = {}, {}, { c = {}, f = {} }
local expiring, keeping = {}, {}
local ids = {}
for number = 1, count do ids[number] = said[6 * number - 4] end
local raws = count > 0 and call('HMGET', JOBS, unpack(ids)) or {}
local touched = {}

local function finish(id, record, state, payload)
  record[STATE] = state
  record[SINCE] = now
  local extra = record[EXTRA]
  if extra then
    if extra.k then release_key(id, record) end
    extra.x = nil
    if extra.t then
      extra.e = now + extra.t
      expiring[#expiring + 1] = extra.e
      expiring[#expiring + 1] = id
    end
    reply(id, record, state, payload)
    if extra[state] then keeping[#keeping + 1] = { state, extra[state] } end
  end
  local list = shelved[state]
  list[#list + 1] = id
  results_out[#results_out + 1] = id
  results_out[#results_out + 1] = payload
end

local function end_attempt(id, record, kind, a, b)
  local started = record[PROCESSED]
  record[SETTLED] = record[TOKEN] .. ':' .. record[STARTED]
  record[TOKEN] = false
  done[#done + 1] = id
  if kind == 'c' then
    record[MADE] = record[MADE] + 1
    finish(id, record, 'c', a)
    tell('completed', id, record, 'active', now - started, #a)
  elseif kind == 'f' then
    local payload, failure = add_failure(id, a, { made = record[MADE] })
    record[MADE] = record[MADE] + 1
    finish(id, record, 'f', payload)
    tell('failed', id, record, 'active', now - started, reason_of(failure))
    if b == 1 then tell('retries-exhausted', id, record) end
  elseif kind == 'r' then
    local payload, failure = add_failure(id, a, { made = record[MADE] })
    record[MADE] = record[MADE] + 1
    results_out[#results_out + 1] = id
    results_out[#results_out + 1] = payload
    tell('retrying', id, record, nil, b, reason_of(failure))
    line_up(id, record, b, record[EXTRA] and record[EXTRA].l)
  elseif kind == 'p' then
    local wait = b ~= '' and math.max(0, b - now) or a
    line_up(id, record, wait, false)
  else
    line_up(id, record, 0, true)
  end
  put(id, record)
end

-- A job with nothing special: its new record is put together from bytes. Jobs that were claimed
-- together mostly share their old record, and so their new one and, with results as long, their
-- events.
local alike, model, holder, times, about, length, twins = false, false, '', 0, false, 0, {}

local function close_twins()
  if #twins == 0 then return end
  tell_alike({ 'completed' }, twins, about .. pack(length))
  twins = {}
end

local function open_twins(raw)
  close_twins()
  alike, model = raw, false
  if string.byte(raw, -1) ~= 194 then return end
  local fine, at, state, ticket, created, made, begun, stalls, owner, _, worker, processed, name, extra =
    pcall(scan, raw)
  if not fine or extra ~= false or state ~= 'a' or not owner or type(begun) ~= 'number'
     or type(made) ~= 'number' or type(processed) ~= 'number' then
    return
  end
  holder, times = owner, begun
  about = pack(made + 1, name, worker, 'active', now - processed)
  model = '\158\161c' .. pack(ticket, created, made + 1, begun, stalls, false, owner .. ':' .. begun,
                              worker, now, processed) .. string.sub(raw, at + 1)
end

local function complete_plain(id, raw, token, started, result)
  if raw ~= alike then open_twins(raw) end
  if not model or holder ~= token or times ~= started then return false end
  if #result ~= length then
    close_twins()
    length = #result
  end
  twins[#twins + 1] = id
  touched[id] = model
  done[#done + 1] = id
  local size = #jobs_out
  jobs_out[size + 1], jobs_out[size + 2] = id, model
  local list = shelved.c
  list[#list + 1] = id
  size = #results_out
  results_out[size + 1], results_out[size + 2] = id, result
  return true
end

local at = 1
for number = 1, count do
  local kind, id, token, started = said[at], said[at + 1], said[at + 2], said[at + 3]
  local raw = touched[id] or raws[number]
  if kind == 'c' and raw and complete_plain(id, raw, token, started, said[at + 4]) then
    answers[number] = 'D'
  else
    close_twins()
    local record = raw and decode(raw)
    if not record then
      answers[number] = 'G'
    elseif record[STATE] == 'a' and record[TOKEN] == token and record[STARTED] == started then
      end_attempt(id, record, kind, said[at + 4], said[at + 5])
      touched[id] = jobs_out[#jobs_out]
      answers[number] = 'D'
    elseif record[SETTLED] == token .. ':' .. started then
      answers[number] = 'D'
    else
      answers[number] = is_gone(record) and 'G' or 'L'
    end
  end
  at = at + 6
end

close_twins()
flush('ZREM', PROCESSING, done)
flush('HSET', JOBS, jobs_out)
flush('HSET', RESULTS, results_out)
flush('RPUSH', QUEUE, pushes)
pushes = {}
for state, list in pairs(shelved) do
  if #list > 0 then shelve(SHELF[state], list) end
end
flush('ZADD', EXPIRY, expiring)
for _, rule in ipairs(keeping) do retain(SHELF[rule[1]], rule[2]) end

-- How many wait in both lines; nothing is pushed any more unless a claim brings delayed jobs in.
local function in_line()
  return call('LLEN', QUEUE) + call('ZCARD', PRIORITIZED)
end

local batch, lined_up = false, false
if ARGV[3] then
  batch = claim(ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[8],
                ARGV[9] == '1')
elseif #done > 0 then
  lined_up = in_line()
  -- A place under a concurrency limit became free and nobody takes it here.
  if lined_up > 0 then ring() end
end
local granted_some = batch and #batch > 3
if #done > 0 and not granted_some and call('ZCARD', PROCESSING) == 0
   and (lined_up or in_line()) == 0 then
  tell('drained', false)
end
if call('ZCOUNT', EXPIRY, '-inf', now) > 0 then sweep(10) end
flush_events()
return { table.concat(answers), batch }

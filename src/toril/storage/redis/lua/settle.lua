-- End attempts under their leases, then claim the next jobs.
-- ARGV: time, packed {whether no id comes twice, rows}; a row is {kind, token, started, id, a, b}:
--   f failed: failure, exhausted (0|1) · r retried: failure, delay ms
--   p postponed: delay ms or "", until ms or "" · l released: "", ""
--   or {c, token, started, id, result, id, result, …} for jobs that completed
-- then, if more jobs are wanted: the arguments of claim.lua from the token on
-- Returns {answers: one of D done, L lost, G gone per outcome, batch as in claim.lua or false}
-- Events: completed, failed, retries-exhausted, retrying, delayed, waiting, drained, and claim's

local said = unpack_msg(ARGV[2])
local distinct, answers, done, shelved = said[1], {}, {}, { c = {}, f = {} }
local expiring, keeping, touched, overcome, ids = {}, {}, {}, {}, {}
for number = 2, #said do
  local row, size = said[number], #ids
  if row[1] == 'c' then
    for at = 1, (#row - 3) / 2 do ids[size + at] = row[2 + 2 * at] end
  else
    ids[size + 1] = row[4]
  end
end
local raws = #ids > 0 and call('HMGET', JOBS, unpack(ids)) or {}

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
  local close, between = close_with(#payload)
  if not between then
    results_out[#results_out + 1], results_out[#results_out + 2] = id, payload
  elseif record[MADE] > 1 then
    overcome[#overcome + 1] = id
  end
  touched[id] = pack(record) .. (between and payload or '') .. close
  ended_out[#ended_out + 1], ended_out[#ended_out + 2] = id, touched[id]
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
  if not SHELF[record[STATE]] then
    put(id, record)
    touched[id] = jobs_out[#jobs_out]
  end
end

-- Jobs with nothing special: their new record is put together from bytes. Jobs that were claimed
-- together mostly share their old record, and so their new one and, with results as long, their
-- events. Tells whether it was so with the jobs of a row from the first to the last.
local function complete_alike(row, first, last, raw)
  if string.byte(raw, -1) ~= 194 then return false end
  local fine, at, state, ticket, created, made, begun, stalls, owner, _, worker, processed, name, extra =
    pcall(scan, raw)
  if not fine or extra ~= false or state ~= 'a' or owner ~= row[2] or begun ~= row[3]
     or type(made) ~= 'number' or type(processed) ~= 'number' then
    return false
  end
  local model = '\158\161c' .. pack(ticket, created, made + 1, begun, stalls, false,
    owner .. ':' .. begun, worker, now, processed) .. string.sub(raw, at + 1)
  local twins, close, between = ids, close_with(#row[3 + 2 * first])
  local ended, there, written, set = #done, #shelved.c, #ended_out, #results_out
  if last - first + 1 == #ids then
    done, shelved.c = ids, ids
  else
    twins = {}
    local shelf = shelved.c
    for number = first, last do
      local id, nth = row[2 + 2 * number], number - first + 1
      twins[nth], done[ended + nth], shelf[there + nth] = id, id, id
    end
  end
  for number = first, last do
    local id, even = row[2 + 2 * number], 2 * (number - first + 1)
    ended_out[written + even - 1] = id
    if between then
      ended_out[written + even] = model .. row[3 + 2 * number] .. close
    else
      ended_out[written + even] = model .. close
      results_out[set + even - 1], results_out[set + even] = id, row[3 + 2 * number]
    end
  end
  if between and made > 0 then
    for number = 1, #twins do overcome[#overcome + 1] = twins[number] end
  end
  if not distinct then touched[twins[1]] = model .. close end
  tell_alike({ 'completed' }, twins,
             pack(made + 1, name, worker, 'active', now - processed, #row[3 + 2 * first]))
  return true
end

local function settle_one(id, raw, kind, token, started, a, b)
  local record = raw and decode(raw)
  if not raw then record = load(id) end
  if not record then return 'G' end
  if record[STATE] == 'a' and record[TOKEN] == token and record[STARTED] == started then
    end_attempt(id, record, kind, a, b)
    return 'D'
  end
  if record[SETTLED] == token .. ':' .. started then return 'D' end
  return is_gone(record) and 'G' or 'L'
end

-- Settle a row of completed jobs, whose old records begin at `from`.
local function complete(row, from)
  local count, first = (#row - 3) / 2, 1
  while first <= count do
    local id, result, last = row[2 + 2 * first], row[3 + 2 * first], first
    local raw = touched[id] or raws[from + first]
    while distinct and last < count and raws[from + last + 1] == raw
          and #row[5 + 2 * last] == #result do
      last = last + 1
    end
    if raw and complete_alike(row, first, last, raw) then
      answers[#answers + 1] = string.rep('D', last - first + 1)
    else
      for number = first, last do
        answers[#answers + 1] = settle_one(row[2 + 2 * number], raw, 'c', row[2], row[3],
                                           row[3 + 2 * number])
      end
    end
    first = last + 1
  end
  return count
end

local from = 0
for number = 2, #said do
  local row = said[number]
  if row[1] == 'c' then
    from = from + complete(row, from)
  else
    from = from + 1
    answers[#answers + 1] = settle_one(row[4], touched[row[4]] or raws[from], row[1], row[2], row[3],
                                       row[5], row[6])
  end
end

flush('ZREM', PROCESSING, done)
flush('HDEL', JOBS, shelved.c)
flush('HDEL', JOBS, shelved.f)
flush('HSET', JOBS, jobs_out)
flush('HSET', ENDED, ended_out)
flush('HDEL', RESULTS, overcome)
flush('HSET', RESULTS, results_out)
flush('RPUSH', QUEUE, pushes)
pushes = {}
for state, list in pairs(shelved) do
  if #list > 0 then shelve(SHELF[state], list) end
end
flush('ZADD', EXPIRY, expiring)
for _, rule in ipairs(keeping) do retain(SHELF[rule[1]], rule[2]) end

local batch = false
if ARGV[3] then
  batch = claim(ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[8],
                ARGV[9] == '1')
end
if #done > 0 and not (batch and #batch[4] > 0) then
  if call('EXISTS', QUEUE, PRIORITIZED, PROCESSING) == 0 then
    tell('drained', false)
  elseif not batch and call('EXISTS', QUEUE, PRIORITIZED) > 0 then
    -- A place under a concurrency limit became free and nobody takes it here.
    ring()
  end
end
if call('ZCOUNT', EXPIRY, '-inf', now) > 0 then sweep(10) end
flush_events()
return { table.concat(answers), batch }

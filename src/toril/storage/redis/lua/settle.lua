-- End attempts under their leases, then claim the next jobs.
-- ARGV: time, number of outcomes, then per outcome: kind, id, token, started, a, b
--   c completed: result, "" · f failed: failure, exhausted (0|1) · r retried: failure, delay ms
--   p postponed: delay ms or "", until ms or "" · l released: "", ""
-- then, if more jobs are wanted: the arguments of claim.lua from the token on
-- Returns {answers: one of D done, L lost, G gone per outcome, batch as in claim.lua or false}
-- Events: completed, failed, retries-exhausted, retrying, delayed, waiting, drained, and claim's

local count = tonumber(ARGV[2])
local answers, done, shelved = {}, {}, { c = {}, f = {} }
local expiring, keeping = {}, {}
local ids = {}
for number = 1, count do ids[number] = ARGV[4 + (number - 1) * 6] end
local raws = count > 0 and call('HMGET', JOBS, unpack(ids)) or {}
local touched = {}

local function finish(id, record, state, payload)
  release_key(id, record)
  record[STATE] = state
  record[SINCE] = now
  local extra = record[EXTRA]
  if extra then
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
    if b == '1' then tell('retries-exhausted', id, record) end
  elseif kind == 'r' then
    local payload, failure = add_failure(id, a, { made = record[MADE] })
    record[MADE] = record[MADE] + 1
    results_out[#results_out + 1] = id
    results_out[#results_out + 1] = payload
    tell('retrying', id, record, nil, tonumber(b), reason_of(failure))
    line_up(id, record, tonumber(b), record[EXTRA] and record[EXTRA].l)
  elseif kind == 'p' then
    local wait = b ~= '' and math.max(0, tonumber(b) - now) or tonumber(a)
    line_up(id, record, wait, false)
  else
    line_up(id, record, 0, true)
  end
  put(id, record)
end

local at = 3
for number = 1, count do
  local kind, id, token, started = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local record = touched[id] or (raws[number] and decode(raws[number]))
  if not record then
    answers[number] = 'G'
  elseif record[STATE] == 'a' and record[TOKEN] == token and tostring(record[STARTED]) == started then
    end_attempt(id, record, kind, ARGV[at + 4], ARGV[at + 5])
    touched[id] = record
    answers[number] = 'D'
  elseif record[SETTLED] == token .. ':' .. started then
    answers[number] = 'D'
  else
    answers[number] = is_gone(record) and 'G' or 'L'
  end
  at = at + 6
end

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

local batch = false
if ARGV[at] then
  batch = claim(ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]),
                ARGV[at + 4], ARGV[at + 5], ARGV[at + 6] == '1')
elseif #done > 0 and (call('LLEN', QUEUE) > 0 or call('ZCARD', PRIORITIZED) > 0) then
  -- A place under a concurrency limit became free and nobody takes it here.
  ring()
end
local granted_some = batch and #batch > 3
if #done > 0 and not granted_some and call('ZCARD', PROCESSING) == 0 and call('LLEN', QUEUE) == 0
   and call('ZCARD', PRIORITIZED) == 0 then
  tell('drained', false)
end
if call('ZCOUNT', EXPIRY, '-inf', now) > 0 then sweep(10) end
flush_events()
return { table.concat(answers), batch }

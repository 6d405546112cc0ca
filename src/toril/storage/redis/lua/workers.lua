-- Name the workers seen lately.
-- ARGV: time
-- Returns per worker: id (and name after a newline), ms since seen, jobs it holds
-- Events: none

local active, answers = {}, {}
local ids = call('ZRANGE', PROCESSING, 0, -1)
for first = 1, #ids, 1000 do
  local some = { unpack(ids, first, math.min(first + 999, #ids)) }
  for _, raw in ipairs(call('HMGET', JOBS, unpack(some))) do
    local record = raw and decode(raw)
    local worker = record and record[WORKER]
    if worker then active[worker] = (active[worker] or 0) + 1 end
  end
end
local seen = call('ZRANGEBYSCORE', base .. 'workers', '(' .. score(now - SEEN_MS), '+inf', 'WITHSCORES')
for number = 1, #seen, 2 do
  answers[#answers + 1] = seen[number]
  answers[#answers + 1] = now - tonumber(seen[number + 1])
  answers[#answers + 1] = active[seen[number]] or 0
end
return answers

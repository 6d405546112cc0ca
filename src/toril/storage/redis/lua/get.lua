-- Read jobs whole.
-- ARGV: time, ids
-- Returns per id: record, spec, result or failure, progress; all false for the unknown
-- Events: none

local answers = {}
local ids = { unpack(ARGV, 2) }
if #ids == 0 then return answers end
local records, ended = call('HMGET', JOBS, unpack(ids)), call('HMGET', ENDED, unpack(ids))
local specs, results = call('HMGET', SPECS, unpack(ids)), call('HMGET', RESULTS, unpack(ids))
local progress = call('HMGET', PROGRESS, unpack(ids))
for number = 1, #ids do
  local raw, payload = records[number], results[number]
  if not raw and ended[number] then
    local between
    raw, between = open_up(ended[number])
    payload = between or payload
  end
  local at = #answers
  local record = raw and decode(raw)
  if record and not is_gone(record) then
    answers[at + 1], answers[at + 2] = raw, specs[number]
    answers[at + 3], answers[at + 4] = payload, progress[number]
  else
    answers[at + 1], answers[at + 2], answers[at + 3], answers[at + 4] = false, false, false, false
  end
end
return answers

-- Delete jobs that have not started; ask the owners of those that have.
-- ARGV: time, running (0|1), ids, and what once.lua reads
-- Returns per id: x cancelled, n not found, a processing, r requested, c completed, f failed
-- Events: cancelled

local answers = {}
local pending = { w = true, p = true, d = true }
for at = 3, #ARGV - 2 do
  local id = ARGV[at]
  local record = load(id)
  local answer = 'n'
  if record and not is_gone(record) then
    local state = record[STATE]
    answer = state
    if state == 'a' then
      if ARGV[2] == '1' then
        extra_of(record).x = true
        call('HSET', JOBS, id, pack(record))
        answer = 'r'
      end
    elseif pending[state] then
      tell('cancelled', id, record, WORDS[state])
      reply(id, record, 'x')
      bury(id, record, 'x')
      answer = 'x'
    end
  end
  answers[#answers + 1] = answer
end
flush_events()
return answer_once(table.concat(answers), 'x')

-- Delete finished jobs that still have the end somebody saw.
-- ARGV: time, per job its id and when it had finished, and what once.lua reads
-- Returns per job: r deleted, n gone or changed
-- Events: removed, cleaned

local answers, gone = {}, 0
for at = 2, #ARGV - 3, 2 do
  local id = ARGV[at]
  local record = load(id)
  local answer = 'n'
  if record and SHELF[record[STATE]] and record[SINCE] == tonumber(ARGV[at + 1])
     and not is_gone(record) then
    tell('removed', id, record, WORDS[record[STATE]])
    bury(id, record, record[STATE], payload_of(id))
    answer = 'r'
    gone = gone + 1
  end
  answers[#answers + 1] = answer
end
if gone > 0 then tell('cleaned', false, nil, nil, gone) end
flush_events()
return answer_once(table.concat(answers), 'r')

-- Delete jobs in any state but active.
-- ARGV: time, ids, and what once.lua reads
-- Returns per id: r removed, n not found, a active
-- Events: removed

local answers = {}
for at = 2, #ARGV - 2 do
  local id = ARGV[at]
  local record = load(id)
  local answer = 'n'
  if record and not is_gone(record) then
    local state = record[STATE]
    if state == 'a' then
      answer = 'a'
    else
      tell('removed', id, record, WORDS[state])
      local kind, payload = 'g', false
      if SHELF[state] then
        kind, payload = state, payload_of(id)
      else
        reply(id, record, 'g')
      end
      bury(id, record, kind, payload)
      answer = 'r'
    end
  end
  answers[#answers + 1] = answer
end
flush_events()
return answer_once(table.concat(answers), 'r')

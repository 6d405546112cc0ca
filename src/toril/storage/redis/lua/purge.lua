-- Delete some of the named jobs: those still in their state, for long enough.
-- ARGV: time, older ms, states as letters, ids
-- Returns the ids deleted
-- Events: removed

local gone = {}
for at = 4, #ARGV do
  local id = ARGV[at]
  local record = load(id)
  if record and not is_gone(record) and string.find(ARGV[3], record[STATE], 1, true)
     and now - record[SINCE] >= tonumber(ARGV[2]) then
    tell('removed', id, record, WORDS[record[STATE]])
    local kind, payload = 'g', false
    if SHELF[record[STATE]] then
      kind, payload = record[STATE], payload_of(id)
    else
      reply(id, record, 'g')
    end
    bury(id, record, kind, payload)
    gone[#gone + 1] = id
  end
end
if #gone > 0 then tell('cleaned', false, nil, nil, #gone) end
flush_events()
return gone

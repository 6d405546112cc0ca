-- Restart the keep time of finished jobs.
-- ARGV: time, keep ms or "" for good, ids
-- Returns per id: 1 kept, 0 not there
-- Events: none

local answers = {}
for at = 3, #ARGV do
  local id = ARGV[at]
  local record = load(id)
  local there = record and not is_gone(record) and SHELF[record[STATE]]
  if there then
    if ARGV[2] == '' then
      extra_of(record).e = nil
      call('ZREM', EXPIRY, id)
    else
      local till = now + tonumber(ARGV[2])
      extra_of(record).e = till
      call('ZADD', EXPIRY, till, id)
    end
    save(id, record)
  end
  answers[#answers + 1] = there and 1 or 0
end
return answers

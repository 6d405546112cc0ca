-- Prolong the leases still held.
-- ARGV: time, lease ms, then per lease: id, token, started
-- Returns one of K kept, L lost, C kept and asked to cancel per lease
-- Events: none

local ids, answers, leases, seen = {}, {}, {}, {}
for at = 3, #ARGV, 3 do ids[#ids + 1] = ARGV[at] end
local raws = #ids > 0 and call('HMGET', JOBS, unpack(ids)) or {}
for number, id in ipairs(ids) do
  local at = 3 + (number - 1) * 3
  local record = raws[number] and decode(raws[number])
  if record and record[STATE] == 'a' and record[TOKEN] == ARGV[at + 1]
     and tostring(record[STARTED]) == ARGV[at + 2] then
    leases[#leases + 1] = now + tonumber(ARGV[2])
    leases[#leases + 1] = id
    if not seen[record[WORKER]] then
      seen[record[WORKER]] = true
      call('ZADD', base .. 'workers', now, record[WORKER])
    end
    answers[number] = record[EXTRA] and record[EXTRA].x and 'C' or 'K'
  else
    answers[number] = 'L'
  end
end
flush('ZADD', PROCESSING, leases)
return table.concat(answers)

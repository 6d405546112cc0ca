-- Tell the endings of jobs, and ask to be told of those still to come.
-- ARGV: time, reply list of the caller, ids
-- Returns per job: id, kind (c, f, x cancelled, g gone), result or failure or false;
--   for one that goes on: id, p, its origin
-- Events: none

local answers = {}
local function add(id, kind, payload)
  answers[#answers + 1], answers[#answers + 2], answers[#answers + 3] = id, kind, payload or false
end

for at = 3, #ARGV do
  local id = ARGV[at]
  local record = load(id)
  local extra = record and record[EXTRA]
  if not record or (extra and extra.e and extra.e <= now) then
    add(id, 'g')
  elseif record[STATE] == 'g' then
    add(id, extra.z[1], extra.z[2])
  elseif SHELF[record[STATE]] then
    add(id, record[STATE], payload_of(id))
  else
    extra = extra_of(record)
    extra.r = extra.r or {}
    local known = false
    for _, who in ipairs(extra.r) do known = known or who == ARGV[2] end
    if not known then
      extra.r[#extra.r + 1] = ARGV[2]
      call('HSET', JOBS, id, pack(record))
    end
    add(id, 'p', record[ORIGIN])
  end
end
return answers

-- Name jobs from the old end of a state, to be looked at by purge.lua.
-- ARGV: time, state letter, how many to pass over, how many
-- Returns ids
-- Events: none

local state, skip, count = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if SHELF[state] then return call('ZRANGE', SHELF[state], skip, skip + count - 1) end
if state == 'p' then return call('ZRANGE', PRIORITIZED, skip, skip + count - 1) end
if state == 'd' then return call('ZRANGE', DELAYED, skip, skip + count - 1) end
local ids, passed, at = {}, 0, 0
while #ids < count do
  local entries = call('LRANGE', QUEUE, at, at + 999)
  if #entries == 0 then break end
  at = at + #entries
  for _, entry in ipairs(entries) do
    local colon = string.find(entry, ':', 1, true)
    local id = string.sub(entry, colon + 1)
    local record = load(id)
    if record and record[STATE] == 'w' and record[TICKET] == tonumber(string.sub(entry, 1, colon - 1)) then
      passed = passed + 1
      if passed > skip then ids[#ids + 1] = id end
      if #ids == count then break end
    end
  end
end
return ids

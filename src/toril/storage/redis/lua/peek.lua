-- Name the jobs start <= n < stop of a state: next to run first, newest finished first, or, if
-- asked, oldest finished first.
-- ARGV: time, state letter, start, stop, oldest first (0|1)
-- Returns ids
-- Events: none

local state, start, stop = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if stop <= start then return {} end
if state == 'p' then return call('ZRANGE', PRIORITIZED, start, stop - 1) end
if state == 'd' then return call('ZRANGE', DELAYED, start, stop - 1) end
if state == 'a' then return call('ZRANGE', PROCESSING, start, stop - 1) end
if SHELF[state] then
  sweep(1000)
  return call(ARGV[5] == '1' and 'ZRANGE' or 'ZREVRANGE', SHELF[state], start, stop - 1)
end

-- The plain line holds stale entries; only where there are none can it be cut by number.
local ids, passed, at = {}, 0, 0
if call('EXISTS', STALE) == 0 then passed, at = start, start end
while #ids < stop - start do
  local entries = call('LRANGE', QUEUE, at, at + 999)
  if #entries == 0 then break end
  at = at + #entries
  for _, entry in ipairs(entries) do
    local colon = string.find(entry, ':', 1, true)
    local id = string.sub(entry, colon + 1)
    local record = load(id)
    if record and record[STATE] == 'w' and record[TICKET] == tonumber(string.sub(entry, 1, colon - 1)) then
      passed = passed + 1
      if passed > start then ids[#ids + 1] = id end
      if #ids == stop - start then break end
    end
  end
end
return ids

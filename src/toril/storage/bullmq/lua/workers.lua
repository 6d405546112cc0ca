-- Name the workers seen lately.
-- ARGV[2]  how long ago that may be, in ms
-- Returns name, ms ago, running jobs each
local seen = call('ZRANGE', base .. 'toril-workers', 0, -1, 'WITHSCORES')
local running = {}
for _, id in ipairs(call('LRANGE', base .. 'active', 0, 9999)) do
  local worker = call('HGET', base .. id, 'pb')
  if worker then running[worker] = (running[worker] or 0) + 1 end
end
local found = {}
for at = 1, #seen, 2 do
  local ago = now - tonumber(seen[at + 1])
  if ago <= tonumber(ARGV[2]) or running[seen[at]] then
    found[#found + 1] = seen[at]
    found[#found + 1] = math.max(0, ago)
    found[#found + 1] = running[seen[at]] or 0
  else
    call('ZREM', base .. 'toril-workers', seen[at])
  end
end
return found

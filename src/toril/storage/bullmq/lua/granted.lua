-- Find what was granted to a claim whose reply was lost, and restart its leases.
-- ARGV[2]  lease in ms
-- ARGV[3]  the claim's token; locks that descend from it begin with it and a colon
-- ARGV[4…] tokens of settled jobs, under which the next ones were fetched
-- Returns {id, lock, fields} each, first granted first
local lease, stem = ARGV[2], ARGV[3] .. ':'
local wanted = {}
for at = 4, #ARGV do wanted[ARGV[at]] = true end
local active = call('LRANGE', base .. 'active', 0, -1)
local found = {}
for at = #active, 1, -1 do
  local id = active[at]
  local lock = call('GET', base .. id .. ':lock')
  if lock and (wanted[lock] or string.sub(lock, 1, #stem) == stem) then
    call('PEXPIRE', base .. id .. ':lock', lease)
    call('SREM', base .. 'stalled', id)
    found[#found + 1] = {id, lock, call('HGETALL', base .. id)}
  end
end
return found

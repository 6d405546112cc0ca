-- Tell which jobs of toril's own layout wait, as their records say, and are not in the plain line.
-- KEYS[1] base of the queue's keys, `{jq:queue}:`
-- ARGV: entries `<ticket>:<id>`
-- Returns ids
-- Events: none
local base, found = KEYS[1], {}
for _, entry in ipairs(ARGV) do
  local ticket, id = string.match(entry, '^(%d*):(.*)$')
  local raw = redis.call('HGET', base .. 'jobs', id)
  local record = raw and cmsgpack.unpack(raw)
  if record and record[1] == 'w' and tostring(record[2]) == ticket
     and not redis.call('LPOS', base .. 'queue', entry) then
    found[#found + 1] = id
  end
end
return found

-- Tell which active jobs of a BullMQ queue have a record and no lock.
-- KEYS[1] base of the queue's keys, `bull:{queue}:`
-- ARGV: how many entries to search, ids
-- Returns ids
-- Events: none
local base, found = KEYS[1], {}
for at = 2, #ARGV do
  local id = ARGV[at]
  if redis.call('EXISTS', base .. id) == 1 and redis.call('EXISTS', base .. id .. ':lock') == 0
     and redis.call('LPOS', base .. 'active', id, 'RANK', -1, 'MAXLEN', ARGV[1]) then
    found[#found + 1] = id
  end
end
return found

-- Tell which dedup keys of a BullMQ queue are held for good by jobs that are gone; free them.
-- KEYS[1] base of the queue's keys, `bull:{queue}:`
-- ARGV: look|free, dedup keys
-- Returns dedup key, job, dedup key, job, …
-- Events: none
local base, found = KEYS[1], {}
for at = 2, #ARGV do
  local key = base .. 'de:' .. ARGV[at]
  local id = redis.call('GET', key)
  if id and redis.call('PTTL', key) == -1 and redis.call('EXISTS', base .. id) == 0 then
    found[#found + 1] = ARGV[at]
    found[#found + 1] = id
    if ARGV[1] == 'free' then redis.call('DEL', key) end
  end
end
return found

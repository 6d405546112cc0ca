-- Tell which dedup keys of toril's own layout are held for good by jobs that are gone; free them.
-- KEYS[1] base of the queue's keys, `{jq:queue}:`
-- ARGV: look|free, dedup keys
-- Returns dedup key, job, dedup key, job, …
-- Events: none
local base, found = KEYS[1], {}
for at = 2, #ARGV do
  local key = base .. 'dedup:' .. ARGV[at]
  local id = string.match(redis.call('GET', key) or '', '^0:(.*)$')
  if id and redis.call('HEXISTS', base .. 'jobs', id) == 0
     and redis.call('HEXISTS', base .. 'ended', id) == 0 then
    found[#found + 1] = ARGV[at]
    found[#found + 1] = id
    if ARGV[1] == 'free' then redis.call('DEL', key) end
  end
end
return found

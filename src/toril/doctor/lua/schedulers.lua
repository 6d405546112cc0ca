-- Tell which schedulers of a BullMQ queue have no job that will run.
-- KEYS[1] base of the queue's keys, `bull:{queue}:`
-- ARGV: schedulers
-- Returns {scheduler, its limit or '', how often it ran or '', its end or ''} of each
-- Events: none
local base, found = KEYS[1], {}
for _, id in ipairs(ARGV) do
  local score = redis.call('ZSCORE', base .. 'repeat', id)
  if score then
    local job = 'repeat:' .. id .. ':' .. string.format('%.0f', tonumber(score))
    local runs = redis.call('EXISTS', base .. job) == 1
      and not redis.call('ZSCORE', base .. 'completed', job)
      and not redis.call('ZSCORE', base .. 'failed', job)
    if not runs then
      local key = base .. 'repeat:' .. id
      local facts = {false, false, false}
      if redis.call('TYPE', key).ok == 'hash' then
        facts = redis.call('HMGET', key, 'limit', 'ic', 'endDate')
      end
      found[#found + 1] = {id, facts[1] or '', facts[2] or '', facts[3] or ''}
    end
  end
end
return found

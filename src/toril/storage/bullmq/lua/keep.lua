-- Set how long finished jobs stay.
-- ARGV[2]  ms from now, or '' for good      ARGV[3…]  ids
-- Returns '1' or '0' each
local flags = {}
for at = 3, #ARGV do
  local id = ARGV[at]
  local state = call('EXISTS', base .. id) == 1 and not expired(id) and state_of(id)
  local done = state == 'completed' or state == 'failed'
  if done and ARGV[2] == '' then
    call('ZREM', base .. 'toril-ttl', id)
  elseif done then
    call('ZADD', base .. 'toril-ttl', now + tonumber(ARGV[2]), id)
  end
  flags[at - 2] = done and '1' or '0'
end
return table.concat(flags)

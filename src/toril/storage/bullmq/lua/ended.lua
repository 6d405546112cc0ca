-- Tell how jobs ended.
-- ARGV[2…]  ids
-- Returns per job false while it lives, {'completed', result}, {'failed', reason, kind, stacks},
-- or what a dropped job left, packed
local found = {}
for at = 2, #ARGV do
  local id = ARGV[at]
  local answer = false
  if call('EXISTS', base .. id) == 0 or expired(id) then
    answer = {'tomb', call('GET', base .. 'toril-end:' .. id)}
  elseif call('ZSCORE', base .. 'completed', id) then
    answer = {'completed', call('HGET', base .. id, 'returnvalue')}
  elseif call('ZSCORE', base .. 'failed', id) then
    answer = {'failed', call('HGETALL', base .. id)}
  end
  found[at - 1] = answer
end
return found

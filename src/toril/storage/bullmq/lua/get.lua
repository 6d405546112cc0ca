-- Read jobs and their states.
-- ARGV[2…]  ids
-- Returns per job {state, score or false, fields}, or false
local found = {}
for at = 2, #ARGV do
  local id = ARGV[at]
  local fields = call('HGETALL', base .. id)
  found[at - 1] = false
  if #fields > 0 and not expired(id) then
    local state, score = state_of(id)
    found[at - 1] = {state, score, fields}
  end
end
return found

-- Delete finished jobs that still have the end somebody saw.
-- ARGV[2…]  per job its id and when it had finished
-- Returns a letter each: x deleted, n gone or changed, o left to the official script
-- Events: cleaned
local letters, gone = {}, 0

local function discard(id, finished)
  if call('HGET', base .. id, 'finishedOn') ~= finished or expired(id) then return 'n' end
  local state = state_of(id)
  if state ~= 'completed' and state ~= 'failed' then return 'n' end
  if not is_plain(id) then return 'o' end
  out_of_line(id, state)
  free_key(id)
  forget(id)
  gone = gone + 1
  return 'x'
end

for at = 2, #ARGV, 2 do letters[at / 2] = discard(ARGV[at], ARGV[at + 1]) end
if gone > 0 then tell('cleaned', 'count', gone) end
return table.concat(letters)

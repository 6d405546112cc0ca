-- Tell new jobs from those whose id is taken, of which Node's clients hear as of any duplicate.
-- ARGV[2]  origin of the hand-in, or ''       ARGV[3…]  ids
-- Returns '0' for each id that is free, '1' for each that this hand-in made, '=' for the others
-- Events: duplicated
local flags = {}
for at = 3, #ARGV do
  local id = ARGV[at]
  local flag = '0'
  if call('EXISTS', base .. id) == 1 and not expired(id) then
    flag = ARGV[2] ~= '' and private_of(id)['o'] == ARGV[2] and '1' or '='
    if flag == '=' then tell('duplicated', 'jobId', id) end
  end
  flags[#flags + 1] = flag
end
return table.concat(flags)

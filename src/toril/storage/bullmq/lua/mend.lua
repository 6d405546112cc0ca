-- Put values in order that an official script would die of, half way; keep what was there.
-- ARGV[2]  id      ARGV[3]  token of its owner
-- ARGV[4…] field and its value each
-- Returns 1 if the job is still the owner's
local job = base .. ARGV[2]
if call('GET', job .. ':lock') ~= ARGV[3] then return 0 end
for at = 4, #ARGV, 2 do
  local was = call('HGET', job, ARGV[at])
  if was then call('HSET', job, 'toril-broken-' .. ARGV[at], was, ARGV[at], ARGV[at + 1]) end
end
return 1

-- Upkeep after a look for stalled jobs: expired results, requests nobody can hear any more.
-- ARGV[2]  how many jobs to delete at most      ARGV[3]  text that dooms a cancelled job
-- ARGV[4…] ids that stalled
-- Returns '1' for each of them that is doomed, else '0'
local flags = {}
for at = 4, #ARGV do
  local id = ARGV[at]
  if call('HDEL', base .. 'toril-cancel', id) == 1 and state_of(id) ~= 'active' then
    call('HSET', base .. id, 'defa', ARGV[3])
  end
  flags[at - 3] = call('HEXISTS', base .. id, 'defa') == 1 and '1' or '0'
end
sweep(ARGV[2])
if call('HLEN', base .. 'toril-cancel') > 0 then
  local asked = call('HGETALL', base .. 'toril-cancel')
  for at = 1, math.min(#asked, 2000), 2 do
    if call('GET', base .. asked[at] .. ':lock') ~= asked[at + 1]
      and not call('LPOS', base .. 'active', asked[at]) then
      call('HDEL', base .. 'toril-cancel', asked[at])
    end
  end
end
return table.concat(flags)

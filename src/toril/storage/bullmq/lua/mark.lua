-- Note that somebody waits for the ending of jobs.
-- ARGV[2…]  ids
for at = 2, #ARGV do
  if call('EXISTS', base .. ARGV[at]) == 1 then call('HSET', base .. ARGV[at], 'toril-w', 1) end
end
return 0

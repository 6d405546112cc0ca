-- Set the bounds of a queue; '' lifts one.
-- ARGV[2]  concurrency      ARGV[3]  max starts      ARGV[4]  per ms      ARGV[5]  events kept
local names = {'concurrency', 'max', 'duration', 'opts.maxLenEvents'}
for at, name in ipairs(names) do
  if ARGV[at + 1] == '' then
    call('HDEL', base .. 'meta', name)
  else
    call('HSET', base .. 'meta', name, ARGV[at + 1])
  end
end
if ARGV[5] ~= '' then call('XTRIM', base .. 'events', 'MAXLEN', '~', ARGV[5]) end
local paused, maxed = held_back()
if not paused and not maxed
  and (call('LLEN', base .. 'wait') > 0 or call('ZCARD', base .. 'prioritized') > 0) then
  ring()
end
return 0

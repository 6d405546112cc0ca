-- Wake a worker if there is something for it to do.
local paused, maxed = held_back()
if not paused and not maxed
  and (call('LLEN', base .. 'wait') > 0 or call('ZCARD', base .. 'prioritized') > 0) then
  ring()
end
return 0

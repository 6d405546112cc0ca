-- Stop or resume handing out jobs.
-- ARGV: time, paused (0|1)
-- Returns nothing
-- Events: paused, resumed

if ARGV[2] == '1' then
  if call('HSETNX', META, 'paused', 1) == 1 then tell('paused', false) end
elseif call('HDEL', META, 'paused') == 1 then
  tell('resumed', false)
  ring()
end
flush_events()

-- Set the bounds of a queue; "" lifts one.
-- ARGV: time, concurrency, rate max, rate ms, events kept
-- Returns nothing
-- Events: none

for number, field in ipairs({ 'concurrency', 'rate_max', 'rate_ms', 'events_kept' }) do
  local value = ARGV[number + 1]
  if value == '' then
    call('HDEL', META, field)
  else
    call('HSET', META, field, value)
  end
end
if ARGV[5] ~= '' then
  local last = tonumber(call('HGET', META, 'e') or 0)
  call('XTRIM', base .. 'events', 'MINID', math.max(0, last - tonumber(ARGV[5]) + 1))
end
ring()

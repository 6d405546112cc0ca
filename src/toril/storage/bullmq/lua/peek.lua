-- Read the ids of one page of a state, next to run or newest finished first.
-- ARGV[2]  state      ARGV[3]  start      ARGV[4]  stop, not included
local state, start, stop = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if state ~= 'waiting' and state ~= 'active' then
  local order = (state == 'completed' or state == 'failed') and 'ZREVRANGE' or 'ZRANGE'
  return call(order, base .. state, start, stop - 1)
end
-- The tail of a list is next. Both lists hold jobs only beside clients that pause otherwise.
local ids = {}
local function page(key, from, to)
  local some = call('LRANGE', base .. key, -to, -from - 1)
  for at = #some, 1, -1 do ids[#ids + 1] = some[at] end
end
if state == 'active' then
  page('active', start, stop)
  return ids
end
local length = call('LLEN', base .. 'wait')
if start < length then page('wait', start, math.min(stop, length)) end
if stop > length then page('paused', math.max(0, start - length), stop - length) end
return ids

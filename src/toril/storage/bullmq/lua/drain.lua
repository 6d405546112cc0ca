-- Delete pending jobs without a word, as the official drain does; that one, if the next job of a
-- scheduler waits, deletes others in its place.
-- ARGV[2]  how many at most      ARGV[3…]  wait, paused, prioritized, delayed
-- Returns {deleted ids}, {ids left to the official script, because of flows}
local room = tonumber(ARGV[2])
local gone, left = {}, {}
local scheduled = {}
local schedulers = call('ZRANGE', base .. 'repeat', 0, -1, 'WITHSCORES')
for at = 1, #schedulers, 2 do
  scheduled['repeat:' .. schedulers[at] .. ':' .. schedulers[at + 1]] = true
end

local window = room + #schedulers / 2

local function drop(container, is_list, id)
  if scheduled[id] then return end
  local job = base .. id
  local ties = call('EXISTS', job .. ':dependencies', job .. ':processed', job .. ':failed',
    job .. ':unsuccessful') + (call('HEXISTS', job, 'parentKey'))
  if ties > 0 then
    left[#left + 1] = id
    return
  end
  if is_list then call('LREM', base .. container, -1, id) else call('ZREM', base .. container, id) end
  free_key(id)
  forget(id)
  gone[#gone + 1] = id
end

for at = 3, #ARGV do
  local container = ARGV[at]
  local is_list = container == 'wait' or container == 'paused'
  local ids = is_list and call('LRANGE', base .. container, -window, -1)
    or call('ZRANGE', base .. container, 0, window - 1)
  -- From the tail, where LREM finds its job at once.
  for n = #ids, 1, -1 do
    if #gone < room then drop(container, is_list, ids[n]) end
  end
end
return {gone, left}

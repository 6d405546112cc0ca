-- Name the workers seen lately, and count the running jobs by the names in them.
-- ARGV[2]  how long ago that may be, in ms
-- Returns {member, ms ago …}, {name, running jobs …}
local running, order = {}, {}
for _, id in ipairs(call('LRANGE', base .. 'active', 0, 9999)) do
  local name = call('HGET', base .. id, 'pb')
  if name then
    if not running[name] then order[#order + 1] = name end
    running[name] = (running[name] or 0) + 1
  end
end
local seen = call('ZRANGE', base .. 'toril-workers', 0, -1, 'WITHSCORES')
local found, counts = {}, {}
local may = redis.acl_check_cmd('ZREM', base .. 'toril-workers', '')
for at = 1, #seen, 2 do
  local ago = now - tonumber(seen[at + 1])
  if ago <= tonumber(ARGV[2]) then
    found[#found + 1] = seen[at]
    found[#found + 1] = math.max(0, ago)
  elseif may then
    call('ZREM', base .. 'toril-workers', seen[at])
  end
end
for _, name in ipairs(order) do
  counts[#counts + 1] = name
  counts[#counts + 1] = running[name]
end
return {found, counts}

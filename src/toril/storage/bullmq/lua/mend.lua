-- Put values in order that an official script would die of, half way; keep what was there, and
-- write down why the job must fail, so that whoever gets it next does not run it.
-- ARGV[2]  'stalled': all jobs that the next look for stalled ones will take, if it is due
--          'granted': running jobs under ARGV[3], a claim's token, or ARGV[4…], whole ones
--          'held':    running jobs under ARGV[3…], whole tokens; their starts are counted
-- Returns how many were put in order
local mode = ARGV[2]
local mended = 0

local function doom_of(job, values)
  local changes, why = {}, nil
  local function change(name, raw, value, fault)
    for _, part in ipairs({'toril-broken-' .. name, raw, name, value}) do
      changes[#changes + 1] = part
    end
    why = why or 'broken record: ' .. name .. fault
  end
  for at, name in ipairs({'atm', 'ats', 'stc'}) do
    local raw = values[at]
    if raw and (not string.match(raw, '^%-?%d+$') or #raw > 15) then
      change(name, raw, name == 'ats' and mode ~= 'stalled' and 1 or 0, ' is no whole number')
    end
  end
  local raw = values[4]
  local fine, options = pcall(cjson.decode, raw or '{}')
  if not fine or type(options) ~= 'table' or string.match(raw or '', '^%s*%[') then
    change('opts', raw, '{}', ' is no JSON object')
  end
  return changes, why
end

local function mend(id)
  local job = base .. id
  local values = redis.pcall('HMGET', job, 'atm', 'ats', 'stc', 'opts')
  if values.err then return end
  local changes, why = doom_of(job, values)
  if why then
    call('HSET', job, 'defa', why, unpack(changes))
    mended = mended + 1
  end
end

if mode == 'stalled' then
  if call('EXISTS', base .. 'stalled-check') == 1 then return 0 end
  for _, id in ipairs(call('SMEMBERS', base .. 'stalled')) do
    if call('EXISTS', base .. id .. ':lock') == 0 then mend(id) end
  end
  return mended
end
local stem, wanted = mode == 'granted' and ARGV[3] .. ':' or nil, {}
for at = 3, #ARGV do wanted[ARGV[at]] = true end
for _, id in ipairs(call('LRANGE', base .. 'active', 0, -1)) do
  local lock = call('GET', base .. id .. ':lock')
  if lock and (wanted[lock] or stem and string.sub(lock, 1, #stem) == stem) then mend(id) end
end
return mended

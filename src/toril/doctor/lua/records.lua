-- Tell which records of a BullMQ queue are in none of its lines.
-- KEYS[1] base of the queue's keys, `bull:{queue}:`
-- ARGV: quick|sure, ids; only `sure` searches the lists, which costs as much as they are long
-- Returns ids
-- Events: none
local base, found = KEYS[1], {}
local SETS = {'completed', 'failed', 'delayed', 'prioritized', 'waiting-children'}

local function is_job(id)
  return redis.call('TYPE', base .. id).ok == 'hash'
    and redis.call('HEXISTS', base .. id, 'timestamp') == 1
end

local function is_placed(id)
  for _, set in ipairs(SETS) do
    if redis.call('ZSCORE', base .. set, id) then return true end
  end
  if redis.call('EXISTS', base .. id .. ':lock') == 1 then return true end
  if ARGV[1] ~= 'sure' then return false end
  for _, list in ipairs({'active', 'wait', 'paused'}) do
    if redis.call('LPOS', base .. list, id) then return true end
  end
  return false
end

for at = 2, #ARGV do
  if is_job(ARGV[at]) and not is_placed(ARGV[at]) then found[#found + 1] = ARGV[at] end
end
return found

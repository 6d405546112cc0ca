-- Put finished jobs back in line. The official script forgets their priority and their attempts,
-- and fails for a child whose failure was ignored.
-- ARGV[2]  '1': give them all their attempts again
-- ARGV[3]  '1': each id is followed by the time the job had finished at; with another one it stays
-- ARGV[4…] ids
-- Returns '1' or '0' each
-- Events: waiting
local flags = {}

local function relink(job, state)
  local parent = call('HGET', job, 'parentKey')
  if not parent or call('EXISTS', parent) == 0 then return end
  local gone
  if state == 'completed' then
    gone = call('HDEL', parent .. ':processed', job)
  else
    gone = call('ZREM', parent .. ':unsuccessful', job) + call('HDEL', parent .. ':failed', job)
  end
  if gone > 0 then call('SADD', parent .. ':dependencies', job) end
end

local function revive(id, finished)
  local job = base .. id
  if call('EXISTS', job) == 0 or expired(id) then return false end
  if finished and call('HGET', job, 'finishedOn') ~= finished then return false end
  local state = state_of(id)
  if state ~= 'completed' and state ~= 'failed' then return false end
  local dedup = options_of(id)['de']
  if type(dedup) == 'table' and dedup['id'] then
    local key = base .. 'de:' .. dedup['id']
    local holder = call('GET', key)
    if holder and holder ~= id then return false end
    if not holder then
      local ttl = tonumber(dedup['ttl'] or 0)
      if ttl > 0 then call('SET', key, id, 'PX', ttl) else call('SET', key, id) end
    end
  end
  call('ZREM', base .. state, id)
  call('ZREM', base .. 'toril-ttl', id)
  call('HDEL', job, 'finishedOn', 'processedOn', 'returnvalue', 'failedReason', 'toril-kind')
  if ARGV[2] == '1' then call('HDEL', job, 'atm', 'stacktrace', 'attemptsMade') end
  relink(job, state)
  line_up(id, tonumber(call('HGET', job, 'priority') or 0), options_of(id)['lifo'])
  tell('waiting', 'jobId', id, 'prev', state)
  return true
end

local step = ARGV[3] == '1' and 2 or 1
for at = 4, #ARGV, step do
  flags[#flags + 1] = revive(ARGV[at], step == 2 and ARGV[at + 1]) and '1' or '0'
end
return table.concat(flags)

-- Cancel or remove jobs that do not run.
-- ARGV[2]  'cancel', 'request' (cancel, and ask the owners of running jobs) or 'remove'
-- ARGV[3]  how long the ending of a dropped job stays readable, in ms
-- ARGV[4]  the call's own token: a call whose reply was lost is repeated with the same one
-- ARGV[5…] ids
-- Returns a letter each: n not there, x dropped, a running, r asked, c completed, f failed,
-- o left to the official script
-- Events: cancelled, removed
local mode = ARGV[2]
local letters = {}

local function ending_of(id, state)
  if state == 'completed' then
    return {'completed', call('HGET', base .. id, 'returnvalue') or 'null'}
  elseif state == 'failed' then
    local why = call('HMGET', base .. id, 'failedReason', 'toril-kind')
    return {'failed', why[1] or '', why[2] or 'Error'}
  end
  return {mode == 'remove' and 'gone' or 'cancelled'}
end

-- The ending that a dropped job leaves also tells, at its end, which call dropped it.
local function is_dropped_by_us(id)
  local left = call('GET', base .. 'toril-end:' .. id)
  if not left then return false end
  local ending = cmsgpack.unpack(left)
  return ending[#ending] == ARGV[4]
end

local function drop(id)
  if is_dropped_by_us(id) then return 'x' end
  if call('EXISTS', base .. id) == 0 or expired(id) then return 'n' end
  local state = state_of(id)
  if state == 'active' then
    if mode ~= 'request' then return 'a' end
    local token = call('GET', base .. id .. ':lock')
    if token then call('HSET', base .. 'toril-cancel', id, token) end
    return 'r'
  end
  if mode ~= 'remove' then
    if state == 'completed' then return 'c' elseif state == 'failed' then return 'f' end
  end
  if not is_plain(id) then return 'o' end
  local ending = ending_of(id, state)
  ending[#ending + 1] = ARGV[4]
  call('SET', base .. 'toril-end:' .. id, cmsgpack.pack(ending), 'PX', ARGV[3])
  local prev = state
  if state == 'waiting' then
    prev = call('HEXISTS', base .. 'meta', 'paused') == 1 and 'paused' or 'wait'
  end
  out_of_line(id, state)
  free_key(id)
  forget(id)
  if mode ~= 'remove' then tell('cancelled', 'jobId', id, 'prev', prev) end
  tell('removed', 'jobId', id, 'prev', prev)
  return 'x'
end

for at = 5, #ARGV do letters[at - 4] = drop(ARGV[at]) end
return table.concat(letters)

-- Make way for a job that is about to be added, and tell who holds its id.
-- ARGV[2]  id          ARGV[3]  origin of the hand-in, or ''
-- ARGV[4]  '1': it may replace a failed job       ARGV[5]  its dedup key, or ''
-- Returns {} if the id is free, else {state, '1' if this hand-in made the job, holder of the key}
local id = ARGV[2]
local job = base .. id

-- A key with a time may still be held by the job of this id that is gone.
local function free()
  call('ZREM', base .. 'toril-ttl', id)
  if ARGV[5] ~= '' and call('GET', base .. 'de:' .. ARGV[5]) == id then return {'', '0', id} end
  return {}
end

if call('EXISTS', job) == 0 then return free() end
local state = state_of(id)
if expired(id) and is_plain(id) then
  out_of_line(id, state)
  forget(id)
  return free()
end
local ours = ARGV[3] ~= '' and private_of(id)['o'] == ARGV[3]
local holder = false
if state == 'failed' and ARGV[4] == '1' and not ours and is_plain(id) then
  holder = ARGV[5] ~= '' and call('GET', base .. 'de:' .. ARGV[5])
  if not holder then
    out_of_line(id, state)
    forget(id)
    return {}
  end
end
return {state, ours and '1' or '0', holder or ''}

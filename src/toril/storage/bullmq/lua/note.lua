-- Write progress or log lines under leases; does what updateProgress and addLog do, if the lock
-- is the caller's.
-- ARGV[2]  'p' or 'l'      ARGV[3…]  id, token, text each
-- Returns a letter each: D done, L lost, G gone
-- Events: progress
local letters = {}
for at = 3, #ARGV, 3 do
  local id, token, text = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local job = base .. id
  local letter = 'D'
  if call('EXISTS', job) == 0 then
    letter = 'G'
  elseif call('GET', job .. ':lock') ~= token then
    local till = tonumber(call('ZSCORE', base .. 'toril-ttl', id) or 0)
    letter = till > 0 and till <= now and 'G' or 'L'
  elseif ARGV[2] == 'p' then
    call('HSET', job, 'progress', text)
    tell('progress', 'jobId', id, 'data', text)
  else
    call('RPUSH', job .. ':logs', text)
    local kept = tonumber(options_of(id)['kl'])
    if kept and kept > 0 then
      call('LTRIM', job .. ':logs', -kept, -1)
    elseif kept then
      call('DEL', job .. ':logs')
    end
  end
  letters[#letters + 1] = letter
end
return table.concat(letters)

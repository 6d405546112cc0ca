-- Read one page of the jobs of a state, in an order in which none that stays is passed by.
-- ARGV[2]  key: wait, paused, active, or a sorted set       ARGV[3]  most
-- ARGV[4]  how many fields follow                           ARGV[5…] fields of the hash
-- then, of a list:        how many entries to skip from its newer end, part, parts
--       of a sorted set:  lowest score, highest score, the id read last or '', its score
-- Returns {entries looked at, id read last or '', its score, ids, scores or {}, values of the
-- fields of all of them}
local key, most, width = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local fields = {unpack(ARGV, 5, 4 + width)}
local a, b, c, d = ARGV[5 + width], ARGV[6 + width], ARGV[7 + width], ARGV[8 + width]
local ids, scores, values, looked, last, reached = {}, {}, {}, 0, '', ''
local timed = (key == 'completed' or key == 'failed') and call('EXISTS', base .. 'toril-ttl') == 1

-- The same share for an id whoever asks.
local function is_mine(id, part, parts)
  if parts == 1 then return true end
  local w, x, y, z = string.byte(id, -4, -1)
  return (w + 7 * (x or 0) + 31 * (y or 0) + 127 * (z or 0)) % parts == part
end

local function take(id, score)
  if timed and expired(id) then return end
  local found = call('HMGET', base .. id, unpack(fields))
  if not found[1] and not found[2] then return end
  ids[#ids + 1] = id
  if score then scores[#scores + 1] = score end
  local at = #values
  for number = 1, width do values[at + number] = found[number] end
end

if key == 'wait' or key == 'paused' or key == 'active' then
  -- New entries come in at the left: from there, what is read shifts away from the reader's place
  -- only towards what was read already.
  local skip, part, parts = tonumber(a), tonumber(b), tonumber(c)
  for _, id in ipairs(call('LRANGE', base .. key, skip, skip + most - 1)) do
    looked = looked + 1
    if is_mine(id, part, parts) then take(id) end
  end
else
  local low, skip = a, 0
  if c ~= '' then
    low = d
    if call('ZSCORE', base .. key, c) == d then
      skip = call('ZRANK', base .. key, c) + 1 - call('ZCOUNT', base .. key, '-inf', '(' .. d)
    end
  end
  local page = call('ZRANGEBYSCORE', base .. key, low, b, 'WITHSCORES', 'LIMIT', skip, most)
  looked = #page / 2
  for at = 1, #page, 2 do take(page[at], page[at + 1]) end
  if looked > 0 then last, reached = page[#page - 1], page[#page] end
end
return {looked, last, reached, ids, scores, values}

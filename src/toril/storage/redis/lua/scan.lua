-- Read one page of the jobs of a state, in an order in which none that stays is passed by.
-- ARGV: time, state letter, most, wanted (s specs, r results, p progress), then
--   of the plain line: how many entries to skip from its newer end, part, parts
--   of the others: lowest score, highest score, the id read last or '', its score
-- Returns {time, entries looked at, ids or "<ticket>:<id>", scores or {}, records, specs, results,
--   progress}; what was not wanted is {}
-- Events: none

local state, most, wanted = ARGV[2], tonumber(ARGV[3]), ARGV[4]
local ids, names, scores, looked = {}, {}, {}, 0

-- The same share for an id whoever asks.
local function is_mine(id, part, parts)
  if parts == 1 then return true end
  local a, b, c, d = string.byte(id, -4, -1)
  return (a + 7 * (b or 0) + 31 * (c or 0) + 127 * (d or 0)) % parts == part
end

-- New entries come in at the right: from there, what is read shifts away from the reader's place
-- only towards what was read already.
local function read_line()
  local skip, part, parts = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
  local entries = call('LRANGE', QUEUE, -skip - most, -skip - 1)
  looked = #entries
  for at = looked, 1, -1 do
    local entry = entries[at]
    local id = string.sub(entry, string.find(entry, ':', 1, true) + 1)
    if is_mine(id, part, parts) then
      ids[#ids + 1] = id
      names[#names + 1] = entry
    end
  end
end

local function read_sorted(key)
  local low, high, last, score = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
  local skip = 0
  if last ~= '' then
    low = score
    if call('ZSCORE', key, last) == score then
      skip = call('ZRANK', key, last) + 1 - call('ZCOUNT', key, '-inf', '(' .. score)
    end
  end
  local found = call('ZRANGEBYSCORE', key, low, high, 'WITHSCORES', 'LIMIT', skip, most)
  looked = #found / 2
  for at = 1, #found, 2 do
    ids[#ids + 1] = found[at]
    scores[#scores + 1] = found[at + 1]
  end
  names = ids
end

if state == 'w' then
  read_line()
else
  read_sorted(({ p = PRIORITIZED, d = DELAYED, a = PROCESSING, c = SHELF.c, f = SHELF.f })[state])
end

local function fetch(letter, key)
  if #ids == 0 or not string.find(wanted, letter, 1, true) then return {} end
  return call('HMGET', key, unpack(ids))
end

local records = #ids > 0 and call('HMGET', SHELF[state] and ENDED or JOBS, unpack(ids)) or {}
local results = fetch('r', RESULTS)
if SHELF[state] then
  for number = 1, #records do
    if records[number] then
      local record, payload = open_up(records[number])
      records[number] = record
      if payload and results[1] ~= nil then results[number] = payload end
    end
  end
end
return { now, looked, names, scores, records, fetch('s', SPECS), results, fetch('p', PROGRESS) }

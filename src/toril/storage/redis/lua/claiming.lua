-- Put between the prelude and the scripts that hand out jobs.

-- Let delayed jobs that are due wait for a worker; returns the ms until the next, or -1.
local function promote_due()
  local first = call('ZRANGE', DELAYED, 0, 0, 'WITHSCORES')
  if not first[2] then return -1 end
  local wait = math.floor(tonumber(first[2]) / TIE) - now
  if wait > 0 then return wait end
  return promote()
end

-- Take up to `want` jobs from the plain line, then from the prioritised one.
local function take(want)
  local ids, records, stale, empty = {}, {}, false, false
  for _ = 1, 20 do
    local missing = want - #ids
    if missing == 0 or empty then break end
    local entries = call('LPOP', QUEUE, missing) or {}
    empty = #entries < missing
    if #entries == 0 then break end
    local some, tickets = {}, {}
    for number, entry in ipairs(entries) do
      local colon = string.find(entry, ':', 1, true) or #entry + 1
      tickets[number] = tonumber(string.sub(entry, 1, colon - 1))
      some[number] = string.sub(entry, colon + 1)
    end
    for number, raw in ipairs(call('HMGET', JOBS, unpack(some))) do
      local record = raw and decode(raw)
      if record and record[STATE] == 'w' and record[TICKET] == tickets[number] then
        ids[#ids + 1] = some[number]
        records[#records + 1] = record
      else
        stale = true
        local known = call('SREM', STALE, tickets[number] or '') == 1
        if not record and not known then condemn(some[number], 'waiting') end
      end
    end
  end
  -- An empty line has no stale entries, whatever was noted: somebody may have deleted it.
  if stale and (empty or call('LLEN', QUEUE) == 0) then call('DEL', STALE) end
  if empty then
    local popped = call('ZPOPMIN', PRIORITIZED, want - #ids)
    for number = 1, #popped, 2 do
      local record = load(popped[number])
      if record then
        ids[#ids + 1] = popped[number]
        records[#records + 1] = record
      else
        condemn(popped[number], 'prioritized')
      end
    end
  end
  return ids, records
end

-- How many jobs may start now, for how long a rate holds back the rest, the rate in force.
local function room(want, rate_max, rate_ms)
  local meta = call('HMGET', META, 'paused', 'concurrency', 'rate_max', 'rate_ms',
                    'window_end', 'window_used', 'events_kept')
  kept = meta[7] or EVENTS_KEPT
  if meta[1] then return 0, 0 end
  if meta[2] then want = math.min(want, tonumber(meta[2]) - call('ZCARD', PROCESSING)) end
  local max, ms = tonumber(meta[3] or rate_max), tonumber(meta[4] or rate_ms)
  if max == 0 then return want, 0 end
  local ends, used = tonumber(meta[5] or 0), tonumber(meta[6] or 0)
  if now >= ends then ends, used = now + ms, 0 end
  if used >= max then return 0, ends - now end
  return math.min(want, max - used), 0, { ends, used }
end

-- The server keeps a sorted set of up to 128 short members as a list, which it scans, and whose
-- scores it parses, for each new member. One member over 64 bytes makes it a tree, and a tree it
-- stays until it is empty.
local function lease_out(leases)
  if #leases < 16 or call('EXISTS', PROCESSING) == 1 then
    flush('ZADD', PROCESSING, leases)
    return
  end
  local long = string.rep('-', 65)
  call('ZADD', PROCESSING, 0, long)
  flush('ZADD', PROCESSING, leases)
  call('ZREM', PROCESSING, long)
end

-- Lease jobs: returns {limited for ms, next delayed in ms or -1, now, then per job: id, spec,
-- created, attempts made, times started, stalls}.
local function claim(token, worker, count, lease, rate_max, rate_ms, again)
  local list = { 0, 0, now }
  call('ZADD', base .. 'workers', now, worker)
  local due = promote_due()
  local want = count
  if again then want = want - grant_again(list, token, lease) end
  local open, limited, window = room(want, rate_max, rate_ms)
  if open > 0 then
    local ids, records = take(open)
    local leases, saved = {}, {}
    local stem = score(now + lease) .. '.'
    local specs = #ids > 0 and call('HMGET', SPECS, unpack(ids)) or {}
    for number, id in ipairs(ids) do
      local record = records[number]
      local prev = WORDS[record[STATE]]
      record[STATE] = 'a'
      record[SINCE] = now
      record[PROCESSED] = now
      record[STARTED] = record[STARTED] + 1
      record[TOKEN] = token
      record[WORKER] = worker
      leases[2 * number - 1] = stem .. (100 + number)
      leases[2 * number] = id
      saved[2 * number - 1] = id
      saved[2 * number] = pack(record)
      tell('active', id, record, prev)
      granted(list, id, record, specs[number])
    end
    lease_out(leases)
    flush('HSET', JOBS, saved)
    if window and #ids > 0 then
      call('HSET', META, 'window_end', score(window[1]), 'window_used', window[2] + #ids)
    end
    if #ids == want and (call('LLEN', QUEUE) > 0 or call('ZCARD', PRIORITIZED) > 0) then ring() end
  end
  list[1] = limited
  list[2] = due
  return list
end

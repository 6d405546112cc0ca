-- Put between the prelude and the scripts that hand out jobs.

-- Let delayed jobs that are due wait for a worker; returns the ms until the next, or -1.
local function promote_due()
  local first = call('ZRANGE', DELAYED, 0, 0, 'WITHSCORES')
  if not first[2] then return -1 end
  local wait = math.floor(tonumber(first[2]) / TIE) - now
  if wait > 0 then return wait end
  return promote()
end

-- Offer jobs of the plain line, then of the prioritised one, to `grant` until it took `want`. It
-- gets them in rows that share record and ticket, and tells of each row whether it took it.
local function take(want, grant)
  local taken, stale, empty = 0, false, false
  for _ = 1, 20 do
    local missing = want - taken
    if missing == 0 or empty then break end
    local entries = call('LPOP', QUEUE, missing) or {}
    local size = #entries
    empty = size < missing
    if size == 0 then break end
    local ids, marks, mark, width = {}, {}, '', 0
    for number = 1, size do
      local entry = entries[number]
      if width == 0 or string.sub(entry, 1, width) ~= mark then
        width = string.find(entry, ':', 1, true) or 0
        mark = string.sub(entry, 1, width)
        marks[number] = mark
      end
      ids[number] = string.sub(entry, width + 1)
    end
    local raws, first, ticket = call('HMGET', JOBS, unpack(ids)), 1, false
    while first <= size do
      local raw, till = raws[first], first
      if marks[first] then ticket = tonumber(string.sub(marks[first], 1, -2)) or false end
      while till < size and raws[till + 1] == raw and not marks[till + 1] do till = till + 1 end
      if raw and grant(raw, ids, first, till, 'w', ticket) then
        taken = taken + till - first + 1
      else
        stale = true
        for number = first, till do
          local known = call('SREM', STALE, entries[number]) == 1
          if not known and not (raw and decode(raw)) then condemn(ids[number], 'waiting') end
        end
      end
      first = till + 1
    end
  end
  -- An empty line has no stale entries, whatever was noted: somebody may have deleted it.
  if stale and (empty or call('LLEN', QUEUE) == 0) then call('DEL', STALE) end
  if empty then
    local popped = call('ZPOPMIN', PRIORITIZED, want - taken)
    for number = 1, #popped, 2 do
      local id = popped[number]
      local raw = call('HGET', JOBS, id)
      if raw and grant(raw, { id }, 1, 1) then taken = taken + 1 else condemn(id, 'prioritized') end
    end
  end
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

-- Lease up to `want` jobs that wait and add them to what is given out; returns how many.
local function lease_some(out, token, worker, want, lease)
  local granted, saved, facts, count = {}, {}, out[6], 0
  local mine, who, since = pack(token), pack(worker), pack(now, now)
  local function grant(raw, ids, first, last, wanted, ticket)
    local fine, at, state, entry, created, made, started, stalls, _, settled, _, _, name, extra =
      pcall(scan, raw)
    if not fine or extra == nil or type(state) ~= 'string' or type(made) ~= 'number'
       or type(started) ~= 'number' or type(stalls) ~= 'number'
       or (wanted and (state ~= wanted or entry ~= ticket)) then
      return false
    end
    started = started + 1
    local model = '\158\161a' .. pack(entry, created, made, started, stalls) .. mine
                  .. (settled and pack(settled) or '\194') .. who .. since .. string.sub(raw, at + 1)
    if last - first + 1 < #ids then ids = { unpack(ids, first, last) } end
    for number = 1, #ids do
      local even = 2 * (count + number)
      saved[even - 1], saved[even] = ids[number], model
    end
    if count == 0 then
      granted = ids
    else
      for number = 1, #ids do granted[count + number] = ids[number] end
    end
    count = count + #ids
    local size = #facts
    facts[size + 1], facts[size + 2], facts[size + 3] = #ids, created, made
    facts[size + 4], facts[size + 5] = started, stalls
    tell_alike({ 'active' }, ids, pack(made + 1, name) .. who .. pack(WORDS[state] or false) .. '\194\194')
    return true
  end
  take(want, grant)
  if count == 0 then return 0 end
  local specs = call('HMGET', SPECS, unpack(granted))
  if #out[4] == 0 then
    out[4], out[5] = granted, specs
  else
    for number = 1, count do
      table.insert(out[4], granted[number])
      table.insert(out[5], specs[number])
    end
  end
  lease_out(spread(now + lease, 100, granted))
  flush('HSET', JOBS, saved)
  return count
end

-- Lease jobs: returns {limited for ms, next delayed in ms or -1, now, their ids, their specs, and
-- per row of them that share it: how many, created, attempts made, times started, stalls}.
local function claim(token, worker, count, lease, rate_max, rate_ms, again)
  local out = { 0, 0, now, {}, {}, {} }
  call('ZADD', base .. 'workers', now, worker)
  local due = promote_due()
  local want = count
  if again then want = want - grant_again(out, token, lease) end
  local open, limited, window = room(want, rate_max, rate_ms)
  if open > 0 then
    local leased = lease_some(out, token, worker, open, lease)
    if window and leased > 0 then
      call('HSET', META, 'window_end', score(window[1]), 'window_used', window[2] + leased)
    end
    if leased == want and (call('LLEN', QUEUE) > 0 or call('ZCARD', PRIORITIZED) > 0) then ring() end
  end
  out[1] = limited
  out[2] = due
  return out
end

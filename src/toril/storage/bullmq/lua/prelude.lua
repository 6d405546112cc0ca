-- What our own scripts share.
-- KEYS[1]  base of the queue's keys, `bull:{queue}:`; all of them are in its slot
-- ARGV[1]  the time in ms, or 0 for that of the server
local base = KEYS[1]
local call = redis.call

local stamp = ARGV[1]
local now = tonumber(stamp)
if now == 0 then
  local clock = call('TIME')
  now = clock[1] * 1000 + math.floor(clock[2] / 1000)
  stamp = string.format('%.0f', now)
end

local SETS = {'completed', 'failed', 'delayed', 'prioritized', 'waiting-children'}

local function max_events()
  local most = call('HGET', base .. 'meta', 'opts.maxLenEvents')
  if not most then
    most = 10000
    call('HSET', base .. 'meta', 'opts.maxLenEvents', most)
  end
  return most
end

local function tell(...)
  call('XADD', base .. 'events', 'MAXLEN', '~', max_events(), '*', 'event', ...)
end

local function fields_of(entry)
  local fields, flat = {}, entry[2]
  for at = 1, #flat, 2 do fields[flat[at]] = flat[at + 1] end
  return fields
end

local function time_of(entry)
  return tonumber(string.match(entry[1], '^%d+'))
end

-- By elimination: looking a job up in the lines of the waiting would cost as much as they are long.
local function state_of(id)
  for _, set in ipairs(SETS) do
    local score = call('ZSCORE', base .. set, id)
    if score then return set, score end
  end
  if call('EXISTS', base .. id .. ':lock') == 1 or call('LPOS', base .. 'active', id) then
    return 'active', false
  end
  return 'waiting', false
end

-- A finished job past its keep time is there for nobody but the sweep.
local function expired(id)
  local till = call('ZSCORE', base .. 'toril-ttl', id)
  return till and tonumber(till) <= now
    and (call('ZSCORE', base .. 'completed', id) or call('ZSCORE', base .. 'failed', id))
end

-- paused, maxed
local function held_back()
  local attributes = call('HMGET', base .. 'meta', 'paused', 'concurrency')
  if attributes[1] then return true, false end
  return false, attributes[2]
    and call('LLEN', base .. 'active') >= tonumber(attributes[2]) or false
end

local function ring()
  call('ZADD', base .. 'marker', 0, '0')
end

local function line_up(id, priority, front)
  local paused, maxed = held_back()
  if priority > 0 then
    local place = front and 0 or call('INCR', base .. 'pc') % 0x100000000
    call('ZADD', base .. 'prioritized', priority * 0x100000000 + place, id)
  else
    call(front and 'RPUSH' or 'LPUSH', base .. (paused and 'paused' or 'wait'), id)
  end
  if not paused and not maxed then ring() end
end

-- Jobs in flows and of schedulers are left to the official scripts.
local function is_plain(id)
  local job = base .. id
  local ties = call('HMGET', job, 'parentKey', 'rjk')
  return not ties[1] and not ties[2] and call(
    'EXISTS', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
  ) == 0
end

local function out_of_line(id, state)
  if state == 'waiting' then
    if call('LREM', base .. 'wait', 1, id) == 0 then call('LREM', base .. 'paused', 1, id) end
  else
    call('ZREM', base .. state, id)
  end
end

local function free_key(id)
  local dedup = call('HGET', base .. id, 'deid')
  if dedup and call('GET', base .. 'de:' .. dedup) == id then
    call('DEL', base .. 'de:' .. dedup)
  end
end

-- A dedup key with a time outlives its job, unless `free_key` comes first.
local function forget(id)
  local job = base .. id
  call('ZREM', base .. 'toril-ttl', id)
  call('DEL', job, job .. ':logs')
end

local function options_of(id)
  local raw = call('HGET', base .. id, 'opts')
  local fine, options = pcall(cjson.decode, raw or '{}')
  return fine and type(options) == 'table' and options or {}
end

local function private_of(id)
  local private = options_of(id)['toril']
  return type(private) == 'table' and private or {}
end

-- Delete jobs past their keep time; jobs that run again are none of its business. A user who may
-- only look leaves them, and is told how many there are.
local function sweep(most)
  local left = {completed = 0, failed = 0}
  local ids = call('ZRANGEBYSCORE', base .. 'toril-ttl', 0, now, 'LIMIT', 0, most)
  local may = #ids == 0 or redis.acl_check_cmd('ZREM', base .. 'toril-ttl', ids[1])
  for _, id in ipairs(ids) do
    local state = call('EXISTS', base .. id) == 1 and state_of(id)
    local over = left[state] and is_plain(id)
    if not may then
      if over then left[state] = left[state] + 1 end
    elseif over then
      out_of_line(id, state)
      forget(id)
    else
      call('ZREM', base .. 'toril-ttl', id)
    end
  end
  return left
end

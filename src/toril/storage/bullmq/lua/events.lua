-- Read events, how many there have been, and which of them tell a retry.
-- ARGV[2]  first id      ARGV[3]  last id      ARGV[4]  how many at most
-- Returns {entries, added, length, last id, first id, a digit for each entry: 1 for a retry}
--
-- The wire has no event for a retry: a job goes from active to waiting or delayed, as it does when
-- it stalls, is handed back or postponed, and `delayed` is also told when one is added or put off.
-- A stall is told right after its `waiting`; what toril hands back, postpones and puts off is in
-- `toril-back`; for `delayed`, the job's event before it says whether it was running. Events further
-- back than FAR are not looked at, wherever the page begins, so that each reader finds the same.
-- What Node puts off looks like a retry, but counts no attempt: where the end of the stream is no
-- further than FAR, and the job's record shows that no attempt was counted but that of its end, it is
-- noted in `toril-back` too, for the record will change; by a user who may write, that is.
local FAR, STEP = 500, 50
local SILENT = {progress = true, duplicated = true, deduplicated = true, debounced = true}

local key = base .. 'events'
if call('EXISTS', key) == 0 then return {{}, 0, 0, '0-0', '0-0', ''} end
local flat = call('XINFO', 'STREAM', key)
local info = {}
for at = 1, #flat, 2 do info[flat[at]] = flat[at + 1] end
local first = info['first-entry']
local entries = {}
if ARGV[2] ~= '' then entries = call('XRANGE', key, ARGV[2], ARGV[3], 'COUNT', ARGV[4]) end

local function marked(entry)
  return call('ZSCORE', base .. 'toril-back', entry[1])
end

local function stalls(at, id)
  local after = entries[at + 1]
    or call('XRANGE', key, '(' .. entries[at][1], '+', 'COUNT', 1)[1]
  if not after then return false end
  local fields = fields_of(after)
  return fields['event'] == 'stalled' and fields['jobId'] == id
end

-- Places count from the page's first entry; those before it are 0, -1, …
local digits, last, asked, open, farthest = {}, {}, {}, 0, 0

local function judge(at, kind, place)
  local ran = kind == 'active' or at - place > FAR
  digits[at] = ran and '1' or '0'
end

for at, entry in ipairs(entries) do
  local fields = fields_of(entry)
  local id, kind = fields['jobId'], fields['event']
  digits[at] = '0'
  if kind == 'waiting' and fields['prev'] == 'active' then
    if not stalls(at, id) and not marked(entry) then digits[at] = '1' end
  elseif kind == 'delayed' and id and not marked(entry) then
    if last[id] then
      judge(at, last[id].kind, last[id].at)
    elseif entry[1] ~= first[1] then -- of the oldest event, `added` may have been cut off
      digits[at] = '1'
      asked[id], open, farthest = at, open + 1, at
    end
  end
  if id and kind and not SILENT[kind] then last[id] = {kind = kind, at = at} end
end

local place, till = 0, open > 0 and entries[1][1]
while open > 0 and till and farthest - place <= FAR do
  local some = call('XREVRANGE', key, '(' .. till, '-', 'COUNT', STEP)
  till = nil
  for _, entry in ipairs(some) do
    local fields = fields_of(entry)
    local id, kind = fields['jobId'], fields['event']
    if id and kind and not SILENT[kind] and asked[id] then
      judge(asked[id], kind, place)
      asked[id], open = nil, open - 1
    end
    place, till = place - 1, entry[1]
  end
end

local function put_off(id)
  local facts = redis.pcall('HMGET', base .. id, 'atm', 'attemptsMade', 'finishedOn', 'timestamp')
  local made = facts[4] and tonumber(facts[1] or facts[2] or 0)
  return made and made - (facts[3] and 1 or 0) <= 0
end

-- The record tells of no event before one that begins the job's life anew.
local reborn = {}
local function note_birth(fields)
  local id, kind, prev = fields['jobId'], fields['event'], fields['prev']
  local anew = kind == 'added' or kind == 'waiting' and (prev == 'completed' or prev == 'failed')
  if id and anew then reborn[id] = true end
end

local told = string.find(table.concat(digits), '1')
local ahead = told and call('XRANGE', key, '(' .. entries[#entries][1], '+', 'COUNT', FAR + 1) or {}
if told and #ahead <= FAR then
  local may = redis.acl_check_cmd('ZADD', base .. 'toril-back', 0, '')
  for _, entry in ipairs(ahead) do note_birth(fields_of(entry)) end
  for at = #entries, told, -1 do
    local fields = fields_of(entries[at])
    local id = fields['jobId']
    if digits[at] == '1' and id and not reborn[id] and put_off(id) then
      if may then call('ZADD', base .. 'toril-back', time_of(entries[at]), entries[at][1]) end
      digits[at] = '0'
    end
    note_birth(fields)
  end
end

return {
  entries, info['entries-added'], info['length'], info['last-generated-id'],
  first and first[1] or '0-0', table.concat(digits),
}

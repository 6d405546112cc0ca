-- Tell which entries of a line of a BullMQ queue have no record; on request take them out.
-- KEYS[1] base of the queue's keys, `bull:{queue}:`
-- ARGV: line, list|set, look|strike, how many entries to search, entries
-- Returns the entries that have none
-- Events: none
local base, line, kind, act, most = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local key, found = KEYS[1] .. ARGV[1], {}
for at = 5, #ARGV do
  local id = ARGV[at]
  local there = redis.call('EXISTS', base .. id) == 0
  if there and kind == 'list' then
    there = redis.call('LPOS', key, id, 'RANK', -1, 'MAXLEN', most)
  elseif there then
    there = redis.call('ZSCORE', key, id)
  end
  if there then
    found[#found + 1] = id
    if act == 'strike' then
      if kind == 'list' then redis.call('LREM', key, -1, id) else redis.call('ZREM', key, id) end
      if line == 'active' then
        redis.call('SREM', base .. 'stalled', id)
        redis.call('DEL', base .. id .. ':lock')
      end
    end
  end
end
return found

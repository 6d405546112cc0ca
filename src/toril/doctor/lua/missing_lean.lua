-- Tell which entries of a line of toril's own layout have no record; on request take them out.
-- KEYS[1] base of the queue's keys, `{jq:queue}:`
-- ARGV: line, list|set, look|strike, how many entries to search, entries
-- Returns the entries that have none
-- Events: none
local base, kind, act, most = KEYS[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local key, found = KEYS[1] .. ARGV[1], {}
for at = 5, #ARGV do
  local entry = ARGV[at]
  local id, there = entry, false
  if kind == 'list' then
    local ticket, rest = string.match(entry, '^(%d*):?(.*)$')
    id = rest
    there = redis.call('SISMEMBER', base .. 'stale', ticket) == 0
      and redis.call('LPOS', key, entry, 'MAXLEN', most)
  else
    there = redis.call('ZSCORE', key, entry)
  end
  if there and redis.call('HEXISTS', base .. 'jobs', id) == 0
     and redis.call('HEXISTS', base .. 'ended', id) == 0 then
    found[#found + 1] = entry
    if act == 'strike' then
      if kind == 'list' then redis.call('LREM', key, 1, entry) else redis.call('ZREM', key, entry) end
      -- What else is left of the job is kept, as a claim would.
      local spec = redis.call('HGET', base .. 'specs', id)
      if spec then redis.call('HSET', base .. 'broken', id, spec) end
      redis.call('HDEL', base .. 'specs', id)
      redis.call('HDEL', base .. 'results', id)
    end
  end
end
return found

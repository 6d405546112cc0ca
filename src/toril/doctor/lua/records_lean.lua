-- Read one page of the records of toril's own layout and tell which are not where they say.
-- KEYS[1] base of the queue's keys, `{jq:queue}:`
-- ARGV: jobs|ended, cursor, how many
-- Returns {next cursor, records read, ids in no line, entries that should be in the plain line,
--   ids that cannot be read}
-- Events: none
local base = KEYS[1]
local SETS = {p = 'prioritized', d = 'delayed', a = 'processing', c = 'completed', f = 'failed'}
local page = redis.call('HSCAN', base .. ARGV[1], ARGV[2], 'COUNT', ARGV[3])
local lost, waiting, broken = {}, {}, {}
for at = 1, #page[2], 2 do
  local id = page[2][at]
  -- What ended has more behind its record.
  local fine, _, record = pcall(cmsgpack.unpack_limit, page[2][at + 1], 1)
  if not fine or type(record) ~= 'table' or type(record[1]) ~= 'string' then
    broken[#broken + 1] = id
  elseif record[1] == 'w' then
    waiting[#waiting + 1] = record[2] .. ':' .. id
  elseif SETS[record[1]] and not redis.call('ZSCORE', base .. SETS[record[1]], id) then
    lost[#lost + 1] = id
  end
end
return {page[1], #page[2] / 2, lost, waiting, broken}

-- Read events and how many there have been.
-- ARGV[2]  first id      ARGV[3]  last id      ARGV[4]  how many at most
-- Returns {entries, added, length, last id, first id}
local key = base .. 'events'
if call('EXISTS', key) == 0 then return {{}, 0, 0, '0-0', '0-0'} end
local flat = call('XINFO', 'STREAM', key)
local info = {}
for at = 1, #flat, 2 do info[flat[at]] = flat[at + 1] end
local first = info['first-entry']
local entries = {}
if ARGV[2] ~= '' then entries = call('XRANGE', key, ARGV[2], ARGV[3], 'COUNT', ARGV[4]) end
return {
  entries, info['entries-added'], info['length'], info['last-generated-id'],
  first and first[1] or '0-0',
}

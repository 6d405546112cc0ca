-- Record progress, or append log lines, under leases.
-- ARGV: time, kind (p progress, l log), then per note: id, token, started, text
-- Returns per note: D done, L lost, G gone
-- Events: progress

local answers = {}
for at = 3, #ARGV, 4 do
  local id = ARGV[at]
  local record = load(id)
  if not record or is_gone(record) then
    answers[#answers + 1] = 'G'
  elseif not (record[STATE] == 'a' and record[TOKEN] == ARGV[at + 1]
              and tostring(record[STARTED]) == ARGV[at + 2]) then
    answers[#answers + 1] = 'L'
  elseif ARGV[2] == 'p' then
    call('HSET', PROGRESS, id, ARGV[at + 3])
    tell('progress', id, record, nil, nil, ARGV[at + 3])
    answers[#answers + 1] = 'D'
  else
    local extra, key = extra_of(record), base .. 'logs:' .. id
    call('RPUSH', key, ARGV[at + 3])
    call('LTRIM', key, -math.max(extra.g or 1000, 1), -1)
    if extra.g == 0 then call('DEL', key) end
    if not extra.h then
      extra.h = true
      call('HSET', JOBS, id, pack(record))
    end
    answers[#answers + 1] = 'D'
  end
end
flush_events()
return table.concat(answers)

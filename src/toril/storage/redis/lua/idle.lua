-- Put before all else of `claim`: one that was left here, and whose time ran out with nothing there
-- to wait for. Any other call goes on from here.
-- ARGV are those of `claim`; then, only if it was left here, 1 if the worker is to be listed, else 0
-- Returns what `claim` does
-- Events: none

if ARGV[9] and call('EXISTS', QUEUE, PRIORITIZED, DELAYED) == 0 then
  if ARGV[9] == '1' then
    local clock = call('TIME')
    local seen = clock[1] * 1000 + math.floor(clock[2] / 1000)
    call('ZADD', base .. 'workers', seen, ARGV[3])
  end
  return { 0, -1, 0, {}, {}, {} }
end

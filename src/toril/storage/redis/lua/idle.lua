-- Put before all else of a claim that is left with the server, for when its time ran out with nothing
-- there to wait for. Any other call goes on from here; a repeated one, too, for what it was granted
-- lies in no line any more.
-- ARGV are those of `claim`, but 1 before the last if the worker is to be listed, else 0
-- Returns what `claim` does
-- Events: none

local there = ARGV[9] == '0' and call('EXISTS', QUEUE, PRIORITIZED, DELAYED)

if there == 0 then
  if ARGV[8] == '1' then
    local clock = call('TIME')
    local seen = clock[1] * 1000 + math.floor(clock[2] / 1000)
    call('ZADD', base .. 'workers', seen, ARGV[3])
  end
  return { 0, -1, 0, {}, {}, {} }
end

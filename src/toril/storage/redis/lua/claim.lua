-- Lease up to `count` jobs that may start now.
-- ARGV: time, token, worker, count, lease ms, rate max (0 = none), rate ms, again (0|1);
-- Returns {limited for ms, next delayed in ms or -1, now, ids, specs, and per row of jobs that share
--   it: how many they are, created, attempts made, times started, stalls}
-- Events: active, waiting (delayed jobs that fell due)

local batch = claim(ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6], ARGV[7],
                    ARGV[#ARGV] == '1')
flush_events()
return batch

-- Count the jobs by state.
-- ARGV: time
-- Returns {waiting, prioritized, delayed, active, completed, failed, paused}
-- Events: none

local left = sweep(1000)
return { call('LLEN', QUEUE) - call('SCARD', STALE), call('ZCARD', PRIORITIZED), call('ZCARD', DELAYED),
         call('ZCARD', PROCESSING), call('ZCARD', SHELF.c) - left.c, call('ZCARD', SHELF.f) - left.f,
         call('HEXISTS', META, 'paused') }

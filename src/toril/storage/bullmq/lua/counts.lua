-- Count the jobs by state.
-- Returns wait, paused, prioritized, delayed, active, completed, failed, waiting-children, is paused
local left = sweep(100)
return {
  call('LLEN', base .. 'wait'), call('LLEN', base .. 'paused'),
  call('ZCARD', base .. 'prioritized'), call('ZCARD', base .. 'delayed'),
  call('LLEN', base .. 'active'), call('ZCARD', base .. 'completed') - left.completed,
  call('ZCARD', base .. 'failed') - left.failed, call('ZCARD', base .. 'waiting-children'),
  call('HEXISTS', base .. 'meta', 'paused'),
}

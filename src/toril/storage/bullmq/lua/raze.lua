-- Delete what the official obliterate leaves: parents that wait for children.
for _, id in ipairs(call('ZRANGE', base .. 'waiting-children', 0, -1)) do
  local job = base .. id
  call(
    'DEL', job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed',
    job .. ':unsuccessful'
  )
end
call('DEL', base .. 'waiting-children')
return 0

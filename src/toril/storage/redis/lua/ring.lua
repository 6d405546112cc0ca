-- Leave word again that there may be work: the one it was told to is gone.
-- ARGV: time
-- Returns nothing
-- Events: none

ring()

"""The record of every delegation in Redis: keys, Lua scripts, reads and writes."""

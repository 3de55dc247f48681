"""The record of every delegation in Redis: its keys, its Lua scripts, and who reads and writes it."""

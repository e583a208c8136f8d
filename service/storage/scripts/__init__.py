"""The atomic verbs that run in Redis: one Lua file each, and one function whose signature is its protocol."""

"""The numeric core: hashing, examples, state, learning. Pure: no I/O, no clock, no environment."""

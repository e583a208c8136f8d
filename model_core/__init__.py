"""The numeric core: hashing, examples, state and the learning kernels. Pure: no I/O, no clock, no environment."""

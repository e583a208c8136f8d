"""Models: configuration, state, and the copies of it that processes hold."""

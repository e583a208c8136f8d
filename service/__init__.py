"""The ftrl service: HTTP, the example log, the learner and its mirrors, over a Redis-protocol server."""

__version__ = "0.1.0"

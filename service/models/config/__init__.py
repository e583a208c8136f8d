"""The configuration of a model and its sections."""

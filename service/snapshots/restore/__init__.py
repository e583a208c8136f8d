"""A snapshot becomes a model's state."""

"""Snapshots of models: taken, kept, compared, restored, taken away."""

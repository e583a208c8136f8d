"""Snapshots of the model that a learner leads."""

"""Taking of snapshots by the leading learner."""

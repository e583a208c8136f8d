"""Storage of snapshots and archived logs."""

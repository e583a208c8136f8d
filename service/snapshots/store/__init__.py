"""Where snapshots and archived logs are stored, and how."""

"""Who may call the service, and how much one caller may take of it."""

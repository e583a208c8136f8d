"""The `ftrl` command, one module for each subcommand."""

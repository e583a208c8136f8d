"""Automatic rollback to the last good snapshot."""

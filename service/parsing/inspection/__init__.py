"""Drafts the schema of a log from its first rows."""

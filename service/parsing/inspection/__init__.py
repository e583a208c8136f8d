"""Looks at the first rows of a log, and drafts its schema."""

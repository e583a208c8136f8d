"""Compiled reader of JSON requests."""

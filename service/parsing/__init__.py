"""Bytes from outside to hashed examples."""

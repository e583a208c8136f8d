"""Streams of examples over HTTP: from pieces of a body to groups of checked and hashed examples."""

"""The hash contract: from names and values to hashes."""

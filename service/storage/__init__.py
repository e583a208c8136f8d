"""Redis: connections, topology, keys, records, scripts, the embedded server."""

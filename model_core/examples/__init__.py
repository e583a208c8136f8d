"""Examples in memory and as bytes."""

"""How good a stream of predictions is, kept up to date with every example and restored from bytes."""

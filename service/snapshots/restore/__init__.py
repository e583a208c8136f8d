"""Restoring of snapshots, rebuilding, and creation of models from them."""

"""Snapshots of models: take, store, compare, restore and export."""

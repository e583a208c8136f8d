"""Compilation of kernels, and the functions that they share: numbers, text and hashes."""

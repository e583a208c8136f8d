"""The unified update: one coordinate, four families, the implicit step."""

"""One file for each use case: HTTP in, HTTP out."""

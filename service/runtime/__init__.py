"""Tasks, retries, files and compiled kernels of one process."""

"""What compiled kernels are made of."""

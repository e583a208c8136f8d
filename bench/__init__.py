"""Benchmarks: each compares this service with something else measured in the same run.

`python -m bench` prints one table of ratios; `python -m bench --help` lists the options.
"""

from service.runtime.kernels import choose_kernel_cache

choose_kernel_cache()  # before any benchmark imports numba

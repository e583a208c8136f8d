"""Benchmarks: each compares this service with something else measured in the same run.

`python -m bench` prints one table of ratios; `python -m bench --help` lists the options.
"""

"""Experiments and simulations beside the service: extras that production does not load."""

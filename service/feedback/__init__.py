"""Predictions that wait for their labels: logged, shown, labelled, and learned exactly once."""

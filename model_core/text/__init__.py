"""Compiled readers of Vowpal Wabbit and libsvm text."""

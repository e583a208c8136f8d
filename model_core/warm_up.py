"""Compiling every kernel ahead of its first use, or loading it from the cache."""

from model_core import json_requests, learning, text_formats


def warm_up() -> None:
    """After this no prediction, update or parsing waits for a compiler."""
    learning.warm_up()
    json_requests.warm_up()
    text_formats.warm_up()

"""Compiling every kernel ahead of its first use, or loading it from the cache."""

from model_core import census, json_requests, learning, text_formats
from model_core.online_evaluation import evaluation, slices


def warm_up() -> None:
    """After this no prediction, update, parsing or evaluation waits for a compiler."""
    learning.warm_up()
    json_requests.warm_up()
    text_formats.warm_up()
    evaluation.warm_up()
    slices.warm_up()
    census.warm_up()

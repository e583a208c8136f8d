"""Compiling every kernel ahead of its first use, or loading it from the cache."""

from model_core.evaluation import online, slices
from model_core.json import requests
from model_core.learning import census, rounds
from model_core.text import parser


def warm_up() -> None:
    """After this no prediction, update, parsing or evaluation waits for a compiler."""
    rounds.warm_up()
    requests.warm_up()
    parser.warm_up()
    online.warm_up()
    slices.warm_up()
    census.warm_up()

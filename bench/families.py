"""What the other families and the implicit update cost: rows a second of the kernel, as a ratio."""

from functools import partial
from itertools import islice
from time import perf_counter
from typing import get_args

from bench.criteo import rows
from bench.result import Options, Result, alternate
from model_core.examples.batch import ExampleBatch
from model_core.hashing.encoder import FeatureEncoder
from model_core.learning.hyperparameters import Family, Hyperparameters, Update
from model_core.learning.schedules import Constant
from model_core.warm_up import warm_up
from service.models.config.model import ModelConfig

ROWS = 40_000
A_BATCH = 2048
MODELS = [
    Hyperparameters(family=family, update=update, schedule=Constant(), l1=1e-5)
    for family in get_args(Family)
    for update in get_args(Update)
]


def measure(options: Options) -> list[Result]:
    rows_of_criteo = batches()
    warm_up()
    reference = Hyperparameters(l1=1e-5)
    results = []
    for hyper in MODELS[1:]:
        _rows_a_second(rows_of_criteo, hyper)
        ours, theirs = alternate(
            options.rounds,
            partial(_rows_a_second, rows_of_criteo, hyper),
            partial(_rows_a_second, rows_of_criteo, reference),
        )
        what = f"learning, family {hyper.family}, update {hyper.update}"
        results.append(Result("families", what, "rows/s", ours, theirs, "ftrl, first order"))
    return results


def batches() -> list[ExampleBatch]:
    """The first rows of Criteo, hashed."""
    encoder = FeatureEncoder(ModelConfig().hashing)
    source, found = iter(rows(ROWS)), []
    while chunk := list(islice(source, A_BATCH)):
        encoded = [encoder.encode(row.features) for row in chunk]
        found.append(ExampleBatch.from_encoded(encoded, [row.label for row in chunk]))
    return found


def _rows_a_second(batches: list[ExampleBatch], hyper: Hyperparameters) -> float:
    """Of one pass into an empty state."""
    config = ModelConfig(hyper=hyper)
    state = config.empty_state()
    started = perf_counter()
    for batch in batches:
        config.learn(state, batch)
        state.take_changed()
    return ROWS / (perf_counter() - started)

"""What the evaluation adds to learning: the learner's kernels with it and without it, on the same rows."""

from collections.abc import Iterator
from itertools import islice
from time import perf_counter

from bench.criteo import rows
from bench.result import Options, Result, Target, alternate
from model_core.examples.batch import ExampleBatch
from model_core.hashing.encoder import FeatureEncoder
from model_core.warm_up import warm_up
from service.models.config.model import ModelConfig
from service.models.config.sections import EvaluationConfig
from service.models.evaluation.state import Evaluations

ROWS = 80_000
A_COMMIT = 2048
A_MINUTE = 2000  # rows, so that buckets of time are filled and left behind
CONFIG = ModelConfig.from_json({"hyper": {"rate": {"kind": "adaptive"}}})


def measure(options: Options) -> list[Result]:
    batches = list(_batches())
    warm_up()
    _seconds(batches, evaluated=True)
    with_it, without = alternate(
        options.rounds,
        lambda: _seconds(batches, evaluated=True),
        lambda: _seconds(batches, evaluated=False),
    )
    added = (min(with_it) - min(without)) / ROWS * 1e6
    return [
        Result(
            "evaluation",
            "learning with the evaluation and what a commit takes of it",
            "us/row",
            tuple(1e6 * seconds / ROWS for seconds in with_it),
            tuple(1e6 * seconds / ROWS for seconds in without),
            "learning without",
            Target("<=", 1.25),
            (f"the evaluation adds {added:.2f} microseconds a row",),
        )
    ]


def _batches() -> Iterator[ExampleBatch]:
    encoder = FeatureEncoder(CONFIG.hashing)
    source = iter(rows(ROWS))
    while chunk := list(islice(source, A_COMMIT)):
        yield ExampleBatch.from_encoded(
            [encoder.encode(row.features) for row in chunk], [row.label for row in chunk]
        )


def _seconds(batches: list[ExampleBatch], *, evaluated: bool) -> float:
    """Of one pass into an empty state, a commit a batch."""
    state, evaluations = CONFIG.empty_state(), Evaluations(EvaluationConfig())
    started = perf_counter()
    for number, batch in enumerate(batches):
        learned = CONFIG.learn(state, batch)
        if evaluated:
            evaluations.add(learned.margins, batch, number * A_COMMIT * 60_000 // A_MINUTE)
            evaluations.take()
        state.take_changed()
    return perf_counter() - started

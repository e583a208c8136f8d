"""What a mixture of experts costs: processor time for a row of Criteo, beside that of one model."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import thread_time

from bench.families import ROWS, batches
from bench.result import Options, Result, Target, alternate
from model_core.examples.batch import ExampleBatch
from model_core.hashing.contract import HashContract
from model_core.learning.hyperparameters import AdaptiveRate, Expert, HalfLife, Hyperparameters, MixtureRate
from model_core.learning.rounds import learn_batch, predict_batch
from model_core.learning.state import ModelState
from model_core.warm_up import warm_up
from service.models.config.model import NEW_MODEL

ALPHAS = (0.03, 0.1, 0.3, 1.0)
HALF_LIFE = HalfLife("examples", 50_000)
BITS = HashContract().bits
TARGETS = {4: Target("<=", 1.6), 8: Target("<=", 2.4)}
SINGLE = Hyperparameters()


def mixture(experts: int) -> Hyperparameters:
    """The first experts by alpha, those beyond four with a half-life."""
    found = [Expert(AdaptiveRate(alpha, 0.1), 0.5) for alpha in ALPHAS]
    found += [Expert(one.rate, one.l1, HALF_LIFE) for one in found]
    return Hyperparameters(rate=MixtureRate(tuple(found[:experts])))


def measure(options: Options) -> list[Result]:
    rows = batches()
    warm_up(["learning", "mixture"])
    results = []
    for experts in (2, 4, 8):
        hyper = mixture(experts)
        for what, seconds in (("learning", _learning), ("prediction", _prediction)):
            seconds(rows, hyper)
            ours, theirs = alternate(
                options.rounds, partial(_a_row, seconds, rows, hyper), partial(_a_row, seconds, rows, SINGLE)
            )
            shown = f"{what}, {experts} experts"
            results.append(
                Result("experts", shown, "us/row", ours, theirs, "one model", TARGETS.get(experts))
            )
    dropping = replace(NEW_MODEL, drop_below=1e-6)
    ours, theirs = alternate(
        options.rounds,
        partial(_a_row, _learning, rows, dropping),
        partial(_a_row, _learning, rows, NEW_MODEL),
    )
    what = "learning, the default, with a search for features to drop"
    return [*results, Result("experts", what, "us/row", ours, theirs, "without", Target("<=", 1.05))]


def _a_row(
    seconds: Callable[[list[ExampleBatch], Hyperparameters], float],
    rows: list[ExampleBatch],
    hyper: Hyperparameters,
) -> float:
    """Microseconds for a row, the best of three passes."""
    return 1e6 * min(seconds(rows, hyper) for _ in range(3)) / ROWS


def _learning(rows: list[ExampleBatch], hyper: Hyperparameters) -> float:
    """Seconds of one pass into an empty state whose memory is in use."""
    state = _empty(hyper)
    started = thread_time()
    for batch in rows:
        learn_batch(state, hyper, True, 0.0, batch)
    return thread_time() - started


def _prediction(rows: list[ExampleBatch], hyper: Hyperparameters) -> float:
    """Seconds of predicting all rows from what was learned of them."""
    state = _empty(hyper)
    for batch in rows:
        learn_batch(state, hyper, True, 0.0, batch)
    started = thread_time()
    for batch in rows:
        predict_batch(state, hyper, True, 0.0, batch)
    return thread_time() - started


def _empty(hyper: Hyperparameters) -> ModelState:
    state = ModelState.empty(BITS, len(hyper.experts))
    state.prepare_for(state.rows.nbytes)
    state.rows.fill(0.0)
    return state

"""Thirty days of new ads and users: slots in use and log loss, with and without dropping of features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lab.experiments.drift import Floats, excess_of
from lab.experiments.markdown import markdown_table
from model_core.examples.batch import ExampleBatch
from model_core.kernels.numerics import log_losses, sigmoids
from model_core.learning.hyperparameters import HalfLife, Hyperparameters, MixtureRate
from service.models.config.model import NEW_MODEL, ModelConfig

DAYS = 30
ROWS_A_DAY, QUICK_ROWS_A_DAY = 100_000, 2_000
BITS, QUICK_BITS = 22, 16
NEW_ADS, NEW_USERS = 0.03, 0.15
"""How many appear each day, for each of its rows."""
LONGEST_LIFE = 7
"""Days for which an ad is shown; each is shown for 1 to so many."""
RETURNING_USERS = 0.1
"""How many there are, for each row of a day: they make half of the impressions."""
COLUMNS = ("ad", "advertiser", "site", "user", "device", "hour")
ADVERTISERS, SITES, DEVICES, HOURS = 200, 100, 3, 24
BASE = -4.2  # logit, for 3 % clicks
DEVIATIONS = {"ad": 0.7, "advertiser": 0.7, "site": 0.4, "user": 0.5}  # of logits
SEED = 1
TRACES = (None, 1e-6, 1e-4, 1e-2)
Numbers = npt.NDArray[np.int64]


class Day(NamedTuple):
    """Impressions of one day: columns int64[rows, 6] with numbers of values, labels float64[rows], and the
    truth float64[rows], the probability of a click.
    """

    columns: Numbers
    labels: npt.NDArray[np.float64]
    truth: Floats


@dataclass(frozen=True)
class Churn:
    """What one trace led to, by day: slots in use and features dropped so far at its end, int64[days]; mean
    log loss of the predictions, and the expected one beyond the truth's, float64[days].
    """

    drop_below: float | None
    in_use: Numbers
    dropped: Numbers
    log_loss: Floats
    excess: Floats

    def to_json(self) -> dict[str, Any]:
        curves = {name: getattr(self, name).tolist() for name in ("in_use", "dropped", "log_loss", "excess")}
        return {"drop_below": self.drop_below, **curves}


def days(rows: int, seed: int = SEED) -> Iterator[Day]:
    """Draw DAYS days of so many impressions each.

    Each ad is shown for a few days, some far more often than others. Half of the impressions are of users who
    return every day, the others of users who are new and do not come back after their second day.
    """
    random = np.random.default_rng(seed)
    logits = {name: _Logits(random, deviation) for name, deviation in DEVIATIONS.items()}
    new_ads, new_users, returning = (round(share * rows) for share in (NEW_ADS, NEW_USERS, RETURNING_USERS))
    born = np.repeat(np.arange(1 - LONGEST_LIFE, DAYS), new_ads)
    dies = born + random.integers(1, LONGEST_LIFE + 1, born.size)
    popularity = random.lognormal(0.0, 1.5, born.size)
    of_advertiser = random.integers(ADVERTISERS, size=born.size)
    for day in range(DAYS):
        shown = np.flatnonzero((born <= day) & (day < dies))
        ad = random.choice(shown, rows, p=popularity[shown] / popularity[shown].sum())
        fresh = (
            returning
            + new_users * (day + random.integers(0, 2, rows))
            + random.integers(new_users, size=rows)
        )
        user = np.where(random.random(rows) < 0.5, random.integers(returning, size=rows), fresh)
        site = np.minimum(random.zipf(1.5, rows) - 1, SITES - 1)
        device, hour = random.integers(DEVICES, size=rows), np.sort(random.integers(HOURS, size=rows))
        columns = np.stack([ad, of_advertiser[ad], site, user, device, hour], axis=1)
        truth = sigmoids(
            BASE + np.sum([one.of(columns[:, COLUMNS.index(name)]) for name, one in logits.items()], axis=0)
        )
        yield Day(columns, (random.random(rows) < truth).astype(np.float64), truth)


class _Logits:
    """Normal logits of values that are numbered as they appear."""

    def __init__(self, random: np.random.Generator, deviation: float) -> None:
        self._random = np.random.default_rng(random.integers(2**32))
        self._deviation = deviation
        self._drawn: Floats = np.empty(0)

    def of(self, numbers: Numbers) -> Floats:
        if (more := int(numbers.max()) + 1 - self._drawn.size) > 0:
            self._drawn = np.append(self._drawn, self._random.normal(0.0, self._deviation, more))
        found: Floats = self._drawn[numbers]
        return found


def run(*, quick: bool = False) -> list[Churn]:
    """Learn the days with the default of a new model, whose half-lives are a day, and each of TRACES."""
    rows, bits = (QUICK_ROWS_A_DAY, QUICK_BITS) if quick else (ROWS_A_DAY, BITS)
    drawn = [(batch_of(day), day) for day in days(rows)]
    return [_learned(drawn, config_of(trace, rows, bits)) for trace in TRACES]


def config_of(drop_below: float | None, rows_a_day: int, bits: int) -> ModelConfig:
    rate = NEW_MODEL.rate
    assert isinstance(rate, MixtureRate)
    experts = [
        one if one.forgetting is None else replace(one, forgetting=HalfLife("examples", float(rows_a_day)))
        for one in rate.experts
    ]
    hyper = Hyperparameters(rate=MixtureRate(tuple(experts), rate.share), drop_below=drop_below)
    return ModelConfig.from_json({"hyper": hyper.to_json(), "hashing": {"bits": bits}})


def batch_of(day: Day) -> ExampleBatch:
    """Hash the values of each column."""
    # splitmix64's finalizer, of column and number together: as good as random
    mixed: npt.NDArray[np.uint64] = (day.columns * len(COLUMNS) + np.arange(len(COLUMNS))).astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        mixed = (mixed ^ np.right_shift(mixed, np.uint64(shift))) * np.uint64(factor)
    row_ptr = len(COLUMNS) * np.arange(day.labels.size + 1)
    return ExampleBatch(row_ptr, mixed.astype(np.uint32).ravel(), np.empty(0), day.labels)


def _learned(drawn: Sequence[tuple[ExampleBatch, Day]], config: ModelConfig) -> Churn:
    state, found = config.empty_state(), []
    for batch, day in drawn:
        margins = config.learn(state, batch).margins
        state.take_changed()  # otherwise the list of changes would grow
        losses = (float(log_losses(margins, day.labels).mean()), excess_of(day.truth, margins))
        found.append((state.features_seen, state.discount.dropped, *losses))
    in_use, dropped, log_loss, excess = (np.array(column) for column in zip(*found, strict=True))
    return Churn(config.hyper.drop_below, in_use, dropped, log_loss, excess)


def report_json(found: Sequence[Churn], *, quick: bool) -> dict[str, Any]:
    rows = QUICK_ROWS_A_DAY if quick else ROWS_A_DAY
    return {"days": DAYS, "rows_a_day": rows, "traces": [one.to_json() for one in found]}


def report_markdown(found: Sequence[Churn]) -> str:
    """Slots in use at the end of some days, and the mean log loss of all days and of the last ten."""
    names = {one.drop_below: "never" if one.drop_below is None else f"{one.drop_below:g}" for one in found}
    shown = (1, 5, 10, 15, 20, 25, 30)
    rows: list[Sequence[str]] = [
        (f"slots in use after day {day}", *(f"{one.in_use[day - 1]:,}" for one in found)) for day in shown
    ]
    figures: Mapping[str, Any] = {
        "features dropped": lambda one: f"{one.dropped[-1]:,}",
        "log loss": lambda one: f"{one.log_loss.mean():.5f}",
        "log loss beyond the truth's": lambda one: f"{one.excess.mean():.5f}",
        "the same, days 21 to 30": lambda one: f"{one.excess[20:].mean():.5f}",
    }
    rows += [(name, *map(figure, found)) for name, figure in figures.items()]
    return markdown_table(("dropped below", *names.values()), rows) + "\n"

"""Defaults without tuning: each log in one pass, against the best of `ftrl tune`'s grid and Vowpal Wabbit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lab.experiments import vowpal_wabbit
from lab.experiments.calibration import (
    Calibration,
    calibration_of,
    first_rows_ratio,
    isotonic,
    platt,
    recalibrated,
)
from lab.experiments.datasets import Dataset
from lab.experiments.logs import Log
from lab.experiments.markdown import markdown_table
from lab.experiments.passes import core_digest
from lab.experiments.results import ResultsDirectory
from lab.experiments.space import NOTHING_FORGOTTEN, Option, Space, Varied, text_of
from model_core.kernels.numerics import log_losses
from service.models.config.model import ModelConfig

OLD_HYPER = {"rate": {"kind": "adaptive", "alpha": 0.1, "beta": 1.0}, "l1": 0.5}
QUICK_ROWS = 5_000
QUICK_ALPHAS = (0.05, 0.2, 1.0)
ALONE = "none"
MAPS = {"Platt": platt, "isotonic": isotonic}


@dataclass(frozen=True)
class Losses:
    """Log loss of one pass, and predicted over actual clicks in its first 10,000 rows."""

    log_loss: float
    first_rows: float


@dataclass(frozen=True)
class Outcome:
    """Measurements of a log.

    tuned: by the settings of each single configuration of the grid. vowpal_wabbit: log loss by options.
    calibration: of the new default, and with a learned map on top, by its name; {} for a short log.
    """

    log: str
    half: str
    rows: int
    click_rate: float
    old: Losses
    new: Losses
    tuned: Mapping[str, float]
    vowpal_wabbit: Mapping[str, float]
    calibration: Mapping[str, Calibration]

    @property
    def best(self) -> tuple[float, str]:
        """The lowest loss of the grid, and its settings."""
        return min((loss, settings) for settings, loss in self.tuned.items())

    def above_best(self, losses: Losses) -> float:
        """Percent by which a loss exceeds the best of the grid."""
        return 100.0 * (losses.log_loss / self.best[0] - 1.0)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"calibration": {name: c.to_json() for name, c in self.calibration.items()}}

    @classmethod
    def from_json(cls, obj: dict[str, Any]) -> Outcome:
        parts = {name: Losses(**obj[name]) for name in ("old", "new")}
        found = {name: Calibration.from_json(one) for name, one in obj["calibration"].items()}
        return cls(**(obj | parts | {"calibration": found}))


def measure(
    results: ResultsDirectory, log: Log, data: Dataset, jobs: int | None, *, quick: bool = False
) -> Outcome:
    """The outcome of a log, which is taken from the results if it is known.

    quick: the first rows, with a small grid. jobs: passes in parallel, as in Runner.
    """
    if quick:
        data = first_rows(data)
    contest = _contest(data, quick)
    identity = contest.identity(data)
    name = "".join(c if c.isalnum() else "-" for c in log.name)
    if (known := results.find(name, identity)) is not None:
        return Outcome.from_json(known)
    outcome = _run(log, data, contest, jobs)
    results.keep(name, identity, outcome.to_json())
    return outcome


def first_rows(data: Dataset) -> Dataset:
    """The rows of a quick run."""
    return Dataset(data.name, data.batch.slice(0, min(data.rows, QUICK_ROWS)), data.features)


class _Contest(NamedTuple):
    """The configurations that learn a log, and the options of Vowpal Wabbit."""

    old: ModelConfig
    new: ModelConfig
    tuned: Sequence[Option]
    references: tuple[str, ...]

    def identity(self, data: Dataset) -> str:
        """Canonical JSON of everything that the outcome depends on."""
        configs = [self.old, self.new, *(one.config for one in self.tuned)]
        content = {
            "data": {"name": data.name, "rows": data.rows, "digest": data.digest},
            "configs": [config.canonical() for config in configs],
            "core": core_digest(),
            "vowpal_wabbit": [vowpal_wabbit.installed_version(), *self.references],
        }
        return json.dumps(content, sort_keys=True, separators=(",", ":"))


def _contest(data: Dataset, quick: bool) -> _Contest:
    hashing = {"bits": data.bits}
    space = Space(hashings=(hashing,))
    if quick:
        space = replace(space, alphas=QUICK_ALPHAS, betas=(1.0,))
    references = vowpal_wabbit.GRID[:: 4 if quick else 1]
    return _Contest(
        ModelConfig.from_json({"hyper": OLD_HYPER, "hashing": hashing | {"prior_probability": None}}),
        ModelConfig.from_json({"hashing": hashing}),
        [one for one in space.options()[0] if one.config.hyper.number_of_experts == 1],
        references if vowpal_wabbit.installed_version() else (),
    )


def _run(log: Log, data: Dataset, contest: _Contest, jobs: int | None) -> Outcome:
    from joblib import Parallel, delayed

    margins = margins_of(data, contest.new)
    configs = [contest.old, *(one.config for one in contest.tuned)]
    # The kernels release the GIL, and threads share the data.
    old, *tuned = Parallel(n_jobs=jobs, prefer="threads")(delayed(_losses)(data, one) for one in configs)
    return Outcome(
        log.name,
        log.half,
        data.rows,
        float(data.batch.labels.mean()),
        old,
        _summary(data, margins),
        {settings_of(one.varied): found.log_loss for one, found in zip(contest.tuned, tuned, strict=True)},
        vowpal_wabbit.log_losses_of(data, contest.references) if contest.references else {},
        _calibrations(data, margins),
    )


def margins_of(data: Dataset, config: ModelConfig) -> npt.NDArray[np.float64]:
    """Margins float64[r] of one pass from an empty state, each before its row was learned."""
    return config.learn(config.empty_state(), data.batch).margins


def _losses(data: Dataset, config: ModelConfig) -> Losses:
    return _summary(data, margins_of(data, config))


def _summary(data: Dataset, margins: npt.NDArray[np.float64]) -> Losses:
    labels = data.batch.labels
    return Losses(float(log_losses(margins, labels).mean()), first_rows_ratio(margins, labels))


def _calibrations(data: Dataset, margins: npt.NDArray[np.float64]) -> dict[str, Calibration]:
    alone = calibration_of(margins, data)
    if alone is None:
        return {}
    mapped = {name: recalibrated(margins, data.batch.labels, fit) for name, fit in MAPS.items()}
    found = {name: calibration_of(one, data) for name, one in mapped.items()}
    return {ALONE: alone} | {name: one for name, one in found.items() if one is not None}


def settings_of(varied: Varied) -> str:
    """The settings as words, such as `alpha 0.1, beta 1`."""
    shown = {name: value for name, value in varied.items() if name != "family" and value != NOTHING_FORGOTTEN}
    return ", ".join(f"{name.replace('_', '-')} {text_of(value)}" for name, value in shown.items())


def report_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "logs": [
            one.to_json()
            | {
                "best": one.best,
                "old_above_best": one.above_best(one.old),
                "new_above_best": one.above_best(one.new),
            }
            for one in outcomes
        ]
    }


def report_markdown(outcomes: Sequence[Outcome]) -> str:
    """Three tables: the losses, the best settings, and the calibration, with a sentence each."""
    parts = [_table_of_losses(outcomes), _verdict(outcomes), _table_of_settings(outcomes)]
    if any(one.calibration for one in outcomes):
        parts += [_table_of_calibration(outcomes), _table_of_maps(outcomes)]
    return "\n\n".join(parts) + "\n"


def _table_of_losses(outcomes: Sequence[Outcome]) -> str:
    headings = (
        "log",
        "half",
        "rows",
        "clicks",
        "best of tune",
        "new default",
        "old default",
        "VW default",
        "VW best",
    )
    return markdown_table(headings, [_row_of_losses(one) for one in outcomes])


def _row_of_losses(one: Outcome) -> tuple[str, ...]:
    def shown(loss: float | None) -> str:
        return "-" if loss is None else f"{loss:.5f} ({100 * (loss / one.best[0] - 1):+.2f} %)"

    references = one.vowpal_wabbit
    return (
        *(one.log, one.half, f"{one.rows:,}", f"{100 * one.click_rate:.1f} %", f"{one.best[0]:.5f}"),
        *(shown(one.new.log_loss), shown(one.old.log_loss)),
        *(shown(references.get(vowpal_wabbit.DEFAULT)), shown(min(references.values(), default=None))),
    )


def _verdict(outcomes: Sequence[Outcome]) -> str:
    lines = []
    for half in dict.fromkeys(one.half for one in outcomes):
        some = [one for one in outcomes if one.half == half]
        new, at = max((one.above_best(one.new), one.log) for one in some)
        old, at_old = max((one.above_best(one.old), one.log) for one in some)
        lines.append(
            f"- {half}: the new default is at most {new:.2f} % above the best of the grid ({at}), the old one"
            f" {old:.2f} % ({at_old})."
        )
    return "\n".join(lines)


def _table_of_settings(outcomes: Sequence[Outcome]) -> str:
    rows = []
    for one in outcomes:
        found = one.vowpal_wabbit
        rows.append(
            (one.log, one.best[1], min(found, key=found.__getitem__) or "its default" if found else "-")
        )
    return markdown_table(("log", "best of tune", "best of Vowpal Wabbit"), rows)


def _table_of_calibration(outcomes: Sequence[Outcome]) -> str:
    headings = ("log", "old, first 10,000", "new, first 10,000", "new, after", "tenths right", "slices right")
    rows = []
    for one in outcomes:
        found = one.calibration.get(ALONE)
        after = ("-",) * 3 if found is None else _calibration_cells(found)
        rows.append((one.log, f"{one.old.first_rows:.3f}", f"{one.new.first_rows:.3f}", *after))
    return markdown_table(headings, rows)


def _table_of_maps(outcomes: Sequence[Outcome]) -> str:
    headings = ("log", "map", "log loss after", "total", "tenths right", "slices right")
    rows = []
    for one in outcomes:
        for name, found in one.calibration.items():
            rows.append((one.log, name, f"{found.log_loss:.5f}", *_calibration_cells(found)))
    return markdown_table(headings, rows)


def _calibration_cells(found: Calibration) -> tuple[str, ...]:
    total = f"{found.total:.3f} (±{found.reach:.3f})"
    return (total, *(f"{count.right} of {count.of}" for count in (found.tenths, found.slices)))

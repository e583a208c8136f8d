"""Figures that a simulation reports: predictions against the truth, and the outcome of events."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lab.simulation.experts import WeightSample

Floats = npt.NDArray[np.float64]
MIN_PROBABILITY = 1e-12


@dataclass(frozen=True)
class Quality:
    """Quality of the predictions of one phase, against the true probabilities.

    calibration: mean prediction over mean truth. log_loss: expected under the truth; excess_log_loss: beyond
    that of the truth itself. regret: clicks lost for each impression by not showing the best candidate.
    """

    predictions: int
    calibration: float | None
    log_loss: float | None
    excess_log_loss: float | None
    regret: float | None


@dataclass
class Record:
    """Record of a running simulation, with one item for each candidate or impression."""

    seconds: list[float] = field(default_factory=list)
    predicted: list[Floats] = field(default_factory=list)
    truth: list[Floats] = field(default_factory=list)
    regrets: list[float] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)

    def add(self, seconds: float, predicted: Floats, truth: Floats, shown: int) -> None:
        self.seconds.append(seconds)
        self.predicted.append(predicted)
        self.truth.append(truth)
        self.regrets.append(float(truth.max() - truth[shown]))

    def between(self, start: float, stop: float) -> Quality:
        """Quality of the requests sent from `start` to `stop`, in seconds since the simulation began."""
        chosen = [k for k, seconds in enumerate(self.seconds) if start <= seconds < stop]
        if not chosen:
            return Quality(0, None, None, None, None)
        p = np.concatenate([self.predicted[k] for k in chosen]).clip(MIN_PROBABILITY, 1 - MIN_PROBABILITY)
        q = np.concatenate([self.truth[k] for k in chosen])
        log_loss = _cross_entropy(q, p)
        return Quality(
            p.size,
            float(p.mean() / q.mean()),
            log_loss,
            log_loss - _cross_entropy(q, q),
            float(np.mean([self.regrets[k] for k in chosen])),
        )


@dataclass(frozen=True)
class Accounts:
    """Examples that the model learned, compared with the replies to its clients.

    counted_by: "counts" of the evaluation. learned: examples from all clients. lost, doubled: events that
    it learned too seldom or too often; lost_clicks, doubled_clicks: those with label 1. foreign: examples
    that the simulation did not send.
    """

    counted_by: str
    learned: int
    lost: int
    lost_clicks: int
    doubled: int
    doubled_clicks: int
    foreign: int

    def __str__(self) -> str:
        return (
            f"learned {self.learned}, lost {self.lost} (clicks {self.lost_clicks}), doubled {self.doubled}"
            f" (clicks {self.doubled_clicks}), foreign {self.foreign}, by {self.counted_by}"
        )


@dataclass(frozen=True)
class Report:
    """experts: of the model's mixture. weights: theirs, in the order of time."""

    policy: str
    seconds: float
    requests_per_second: float
    phases: dict[str, Quality]
    events: dict[str, int]
    accounts: Accounts
    experts: list[str]
    weights: list[WeightSample]

    def to_json(self) -> dict[str, Any]:
        report: dict[str, Any] = asdict(self)
        accounts: dict[str, Any] = report.pop("accounts")
        report["weights"] = [sample._asdict() for sample in self.weights]
        return report | accounts


def _cross_entropy(q: Floats, p: Floats) -> float:
    return float(-np.mean(q * np.log(p) + (1 - q) * np.log1p(-p)))

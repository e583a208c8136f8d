"""The published evaluation of a model except for slices: the same figures as JSON and as metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, get_args

from pydantic_core import to_json

from model_core.evaluation.figures import WINDOWS, Figures, Weighting, Window
from model_core.evaluation.online import OnlineEvaluation
from model_core.learning.census import Census
from service.models.evaluation.judgement import Judgement, Part, judgement_of
from service.models.evaluation.state import Evaluations

WEIGHTINGS: tuple[Weighting, ...] = get_args(Weighting)
MEASURES = (
    *("features_seen", "nonzero", "density", "nonfinite", "slot_load", "expected_collision_rate"),
    *("weight_norm", "gradient_norm", "largest_weight"),
)

Json = dict[str, Any]
_OF_FIGURES = [f.name for f in fields(Figures) if f.name != "reliability"]


@dataclass
class Report:
    """Consistent figures: of the revision after `t` rounds, and the time of its newest example.

    sources: for each source, each window twice: by weight, and unweighted. judgement: None before there are
    enough clicks.
    """

    revision: str
    t: int
    newest: int | None = None
    sources: dict[str, list[tuple[Figures, Figures]]] = field(default_factory=dict)
    judgement: Judgement | None = None

    def as_json(self, model: str, census: Census | None, slices_t: int | None = None) -> bytes:
        """The report except for slices, which are as of round `slices_t`."""
        return to_json(
            {
                "model": model,
                "revision": self.revision,
                "t": self.t,
                "as_of": None if self.newest is None else rfc_3339(self.newest),
                "sources": {"served": None} | {s: _source(windows) for s, windows in self.sources.items()},
                "judgement": None if self.judgement is None else self.judgement.to_json(),
                "slices_t": slices_t,
                "measures": None if census is None else {name: getattr(census, name) for name in MEASURES},
            },
            inf_nan_mode="null",
        )


def report_of(
    evaluations: Evaluations, revision: str, t: int, slices: Mapping[Window, Sequence[Part]]
) -> Report:
    """`slices`: those that were published last, to be judged with the rest."""
    report = Report(revision, t, evaluations.progressive.newest)
    report.sources["progressive"] = _both(evaluations.progressive)
    if evaluations.served is not None:
        report.sources["served"] = _both(evaluations.served)
    report.judgement = judgement_of(report.sources, slices)
    return report


def with_slices(report: bytes, slices: bytes | None) -> bytes:
    """Joins the two parts of a report as JSON."""
    return report[:-1] + b',"slices":' + (slices or b"{}") + b"}"


def report_of_nothing(revision: str, t: int) -> Report:
    """The report before any example."""
    windows = [(Figures(window, "weight", 0, 0), Figures(window, "none", 0, 0)) for window in WINDOWS]
    return Report(revision, t, sources={"progressive": windows})


def _both(evaluation: OnlineEvaluation) -> list[tuple[Figures, Figures]]:
    windows = [(window, evaluation.figures(window)) for window in WINDOWS]
    if not evaluation.weighted:
        return [(figures, replace(figures, weighting="none")) for _, figures in windows]
    return [(figures, evaluation.figures(window, "none")) for window, figures in windows]


def _source(windows: list[tuple[Figures, Figures]]) -> Json:
    return {
        "windows": {
            weighted.window: {**_of(weighted), "unweighted": _of(unweighted)}
            for weighted, unweighted in windows
        }
    }


def _of(figures: Figures) -> Json:
    return bare(figures) | {"reliability": [row._asdict() for row in figures.reliability]}


def bare(figures: Figures) -> Json:
    """The figures except for `reliability`."""
    return {name: getattr(figures, name) for name in _OF_FIGURES}


def rfc_3339(milliseconds: int) -> str:
    """A time since the epoch."""
    time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")

"""The published slices of a model, made one at a time: there may be hundreds, and the learner waits."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from pydantic_core import to_json

from model_core.evaluation.figures import WINDOWS, Figures, Window
from model_core.evaluation.slices import SlicedEvaluation
from service.models.evaluation.judgement import JUDGED_OVER, Part, slice_part
from service.models.evaluation.report import bare
from service.models.evaluation.state import Evaluations

OTHER = "other"
IN_SHORT = (
    *("examples", "clicks", "base_rate", "calibration_ratio", "calibration_tolerance"),
    *("auc", "log_loss"),
)

Show = Callable[[str, str, Mapping[Window, Figures]], None]
"""Takes a feature, one of its values, and the figures by weight of each window."""


class SliceReport(NamedTuple):
    """JSON by feature, value and window; `short` has the figures of IN_SHORT to five digits. `t`: the number
    of rounds after which it was begun.

    names: feature and value of each slice. parts: those that have enough clicks in a window, to be judged.
    """

    t: int
    names: frozenset[tuple[str, str]]
    whole: bytes
    short: bytes
    parts: Mapping[Window, list[Part]]


def slices_in_pieces(evaluations: Evaluations, t: int, show: Show) -> Iterator[SliceReport | None]:
    """Yields None after each slice, and at last the report. Later slices may include more examples."""
    whole: dict[str, dict[str, bytes]] = {}
    short: dict[str, dict[str, bytes]] = {}
    parts: dict[Window, list[Part]] = {window: [] for window in JUDGED_OVER}
    for slices, number in _slices_of(evaluations):
        place, category = slices.slice_of(number)
        feature = evaluations.config.slices[place]
        value = _value(evaluations, category, whole.get(feature, {}))
        weighted, plain = _figures(slices, number)
        whole.setdefault(feature, {})[value] = _whole(weighted, plain, _exactness(slices, number))
        short.setdefault(feature, {})[value] = _short(weighted)
        for window, of_window in parts.items():
            if part := slice_part(feature, value, weighted[window]):
                of_window.append(part)
        show(feature, value, weighted)
        yield None
    names = frozenset((feature, value) for feature, values in whole.items() for value in values)
    yield SliceReport(t, names, _joined(whole), _joined(short), parts)


def _slices_of(evaluations: Evaluations) -> Iterator[tuple[SlicedEvaluation, int]]:
    if evaluations.slices is not None:
        yield from ((evaluations.slices, number) for number in evaluations.slices.slices())


def _figures(slices: SlicedEvaluation, number: int) -> tuple[dict[Window, Figures], dict[Window, Figures]]:
    """Weighted and unweighted figures."""
    weighted = {window: slices.figures_of(number, window) for window in WINDOWS}
    if not slices.weighted(number):
        return weighted, {window: replace(f, weighting="none") for window, f in weighted.items()}
    return weighted, {window: slices.figures_of(number, window, "none") for window in WINDOWS}


def _exactness(slices: SlicedEvaluation, number: int) -> dict[str, int]:
    """Further figures of the window `all`: how many examples of values with slices are in the rest."""
    exactness = {"in_other": slices.examples_in_rest(number)}
    feature, category = slices.slice_of(number)
    if category is None:
        exactness["largest_in_other"] = slices.largest_in_rest(feature)
    return exactness


def _whole(
    weighted: Mapping[Window, Figures], plain: Mapping[Window, Figures], exactness: Mapping[str, int]
) -> bytes:
    figures = {window: {**bare(weighted[window]), "unweighted": bare(plain[window])} for window in WINDOWS}
    return to_json(figures | {"all": {**figures["all"], **exactness}}, inf_nan_mode="null")


def _short(weighted: Mapping[Window, Figures]) -> bytes:
    rounded = {
        window: {name: _rounded(getattr(figures, name)) for name in IN_SHORT}
        for window, figures in weighted.items()
    }
    return to_json(rounded, inf_nan_mode="null")


def _rounded(figure: float | None) -> float | None:
    return float(f"{figure:.5g}") if isinstance(figure, float) else figure


def _joined(slices: Mapping[str, Mapping[str, bytes]]) -> bytes:
    """Joins values that are JSON already into one object."""
    features = (
        to_json(feature) + b":{" + b",".join(to_json(v) + b":" + json for v, json in values.items()) + b"}"
        for feature, values in slices.items()
    )
    return b"{" + b",".join(features) + b"}"


def _value(evaluations: Evaluations, category: int | None, taken: Container[str]) -> str:
    """Return a text of its own for each value, with its hash where the text may be that of others."""
    if category is None:
        return OTHER
    name = evaluations.names.get(category)
    if name is None:
        return f"#{category:08x}"
    shown = f'"{OTHER}"' if name.value == OTHER else name.value
    return f"{shown}#{category:08x}" if name.may_be_cut or shown in taken else shown

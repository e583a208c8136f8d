"""Logged predictions as /predict, /update and /impressions use them: ids and statuses are texts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from model_core.examples.batch import ExampleBatch
from service.errors import (
    LabelConflict,
    LabelsUnavailable,
    ModelDeleted,
    PredictionConflict,
    StateUnavailable,
    UnknownPrediction,
)
from service.example_log.appender import (
    NO_RESULTS,
    Placed,
    UpdateResults,
    UpdateStatus,
    is_in_log,
    results_of,
    until_learned,
)
from service.example_log.ids import packed_id
from service.example_log.incoming import NewLabel
from service.example_log.stream import Place
from service.feedback.recorder import Served
from service.feedback.service import Feedback
from service.models.evaluation.slices import SliceName
from service.models.mirror import Source
from service.models.registry import OpenModel
from service.storage.scripts.feedback import Exposure, Labelled, LabelOutcome, LogOutcome

SHOWN_STATUS = {
    Exposure.SHOWN: "shown",
    Exposure.ALREADY_SHOWN: "duplicate",
    Exposure.UNKNOWN: "unknown",
}
_STATUS: Mapping[LabelOutcome, UpdateStatus] = {
    LabelOutcome.PENDING: "waiting",
    LabelOutcome.AWAITS_IMPRESSION: "waiting",
    LabelOutcome.SAMPLED_OUT: "sampled_out",
    LabelOutcome.LATE: "late",
    LabelOutcome.REPEATED: "duplicate",
    LabelOutcome.REPEATED_UNSHOWN: "duplicate",
    LabelOutcome.CONFLICT: "conflict",
    LabelOutcome.UNKNOWN: "unknown",
}
_LOGGED = (LogOutcome.LOGGED, LogOutcome.REPEATED)
_IN_THE_LOG = (LabelOutcome.JOINED, LabelOutcome.JOINED_LATE, LabelOutcome.REPEATED)
_UNSHOWN = (LabelOutcome.AWAITS_IMPRESSION, LabelOutcome.REPEATED_UNSHOWN)


async def record_predictions(
    feedback: Feedback,
    model: OpenModel,
    batch: ExampleBatch,
    margins: npt.NDArray[np.float64],
    ids: Sequence[str | None] | None,
    slice_names: Mapping[int, SliceName],
) -> tuple[list[str], list[bool]]:
    """Logs predictions. Returns their ids, and for each whether it now awaits its label.

    Raises PredictionConflict where the model has logged other predictions under some of the ids.
    """
    replica, recorder = model.mirror.replica, feedback.of(model).predictions
    check = ids is not None and any(ids)
    served = Served(batch, margins, ids, replica.commit, replica.token, check, slice_names)
    texts, outcomes = (
        await recorder.record(served) if model.config.feedback.wait else recorder.record_soon(served)
    )
    if LogOutcome.CONFLICT in outcomes:
        pairs = zip(texts, outcomes, strict=True)
        raise PredictionConflict([text for text, outcome in pairs if outcome is LogOutcome.CONFLICT])
    return texts, [outcome in _LOGGED for outcome in outcomes]


async def show(
    feedback: Feedback,
    former: AsyncIterator[OpenModel],
    model: OpenModel,
    elsewhere: AsyncIterator[OpenModel],
    ids: Sequence[str],
) -> list[str]:
    """The status of each impression: see SHOWN_STATUS. Raises what Feedback.expose raises.

    Of models that have logged the same id the earliest has the impression: `former` are asked before `model`.
    So an impression that is repeated after the switch of an alias joins no label at the other model.
    `elsewhere`: models that may know what `model` does not.
    """
    outcomes = [Exposure.UNKNOWN] * len(ids)
    for models in (former, _only(model), elsewhere):
        async for one in models:
            missing = [k for k, outcome in enumerate(outcomes) if outcome is Exposure.UNKNOWN]
            if not missing:
                break
            try:
                found = await feedback.expose(one, [ids[k] for k in missing])
            except ModelDeleted:
                if one is model:
                    raise
                continue  # a deleted model knows none
            for k, outcome in zip(missing, found, strict=True):
                outcomes[k] = outcome
    return [SHOWN_STATUS[outcome] for outcome in outcomes]


async def _only(model: OpenModel) -> AsyncIterator[OpenModel]:
    yield model


class TakenLabels(NamedTuple):
    """The answers of one model to the labels of these rows of a request."""

    model: OpenModel
    rows: Sequence[int]
    answers: list[Labelled]
    source: Source
    """That of the model's mirror before they were sent."""

    @property
    def unknown(self) -> list[int]:
        pairs = zip(self.rows, self.answers, strict=True)
        return [row for row, answer in pairs if answer.outcome is LabelOutcome.UNKNOWN]

    async def learned(self, deadline: float) -> None:
        """Waits for repeated labels, too: the first try may have been an unanswered one of this request."""
        places = [_place(answer) for answer in self.answers if answer.outcome in _IN_THE_LOG]
        await until_learned(self.model, places, deadline)

    async def are_in_log(self, labels: Sequence[NewLabel]) -> bool:
        """False if the server may have lost some of those that it answered to be in the log."""
        pairs = zip(self.rows, self.answers, strict=True)
        logged = [(row, answer) for row, answer in pairs if answer.outcome in _IN_THE_LOG]
        ids = [labels[row].prediction_id for row, _ in logged]
        placed = Placed([_place(answer) for _, answer in logged], ids, self.source)
        return await is_in_log(self.model, placed, packed_id)

    def results(self, labels: Sequence[NewLabel]) -> UpdateResults:
        own = [labels[row] for row in self.rows]
        placed = Placed([_place(answer) for answer in self.answers], [label.prediction_id for label in own])
        known = results_of(self.model, placed, np.array([label.label for label in own], np.float64))
        pairs = zip(self.answers, known.statuses, strict=True)
        statuses = [_STATUS.get(answer.outcome, status) for answer, status in pairs]
        return known._replace(statuses=statuses, id_field="id")


async def take_labels(
    feedback: Feedback,
    model: OpenModel,
    elsewhere: AsyncIterator[OpenModel],
    switched: Callable[[float], AsyncIterator[OpenModel]],
    labels: Sequence[NewLabel],
    deadline: float,
) -> list[TakenLabels]:
    """Durable when it returns. `elsewhere`: models that may know a prediction that the model does not.
    `switched`: models, loaded by a deadline, that may have logged a prediction under the same id and have its
    impression, though the model knows the id too. The last part that has a row says its status.

    Raises what Feedback.label raises.
    """
    if not labels:
        return []
    source = model.mirror.source
    answers = await feedback.label(model, labels, deadline)
    parts = [TakenLabels(model, range(len(labels)), answers, source)]
    rows = [k for k, answer in enumerate(parts[0].answers) if answer.outcome in _UNSHOWN]
    if rows:
        parts += await _take_where_shown(feedback, switched, labels, rows, min(deadline, feedback.soon()))
    if missing := parts[0].unknown:
        async for other in elsewhere:
            source = other.mirror.source
            try:
                found = await feedback.label(other, [labels[row] for row in missing], deadline)
            except ModelDeleted:  # it knows none
                continue
            parts.append(TakenLabels(other, missing, found, source))
            missing = parts[-1].unknown
            if not missing:
                break
    return parts


async def _take_where_shown(
    feedback: Feedback,
    switched: Callable[[float], AsyncIterator[OpenModel]],
    labels: Sequence[NewLabel],
    rows: list[int],
    deadline: float,
) -> list[TakenLabels]:
    """Offers labels that are durable already to further models that answer in time. Raises LogFull."""
    parts = []
    async for other in switched(deadline):
        source = other.mirror.source
        try:
            answers = await feedback.label(other, [labels[k] for k in rows], deadline)
        except (StateUnavailable, LabelsUnavailable):
            continue
        unknown = (*_UNSHOWN, LabelOutcome.UNKNOWN)
        taken = {k: one for k, one in zip(rows, answers, strict=True) if one.outcome not in unknown}
        parts.append(TakenLabels(other, [*taken], [*taken.values()], source))
        rows = [k for k in rows if k not in taken]
        if not rows:
            break
    return parts


def results_of_labels(labels: Sequence[NewLabel], parts: Sequence[TakenLabels]) -> UpdateResults:
    """The results of labels as known now."""
    if not parts:
        return NO_RESULTS
    results = parts[0].results(labels)
    for part in parts[1:]:
        results.put(part.rows, part.results(labels))
    return results


def refuse_single(labelled: UpdateResults) -> None:
    """Turns the refusal of a single label into an error. Raises UnknownPrediction, LabelConflict."""
    if labelled.statuses == ["unknown"]:
        raise UnknownPrediction(labelled.ids[0])
    if labelled.statuses == ["conflict"]:
        raise LabelConflict(labelled.ids[0])


def _place(answer: Labelled) -> Place:
    entry, offset = answer.place or (None, 0)
    return Place(entry, offset, duplicate=answer.outcome is LabelOutcome.REPEATED)

"""What /predict, /update and /impressions do about predictions that wait: from texts to texts."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from model_core.examples import ExampleBatch
from service.appending import Placed
from service.errors import LabelConflict, PredictionConflict, UnknownPrediction
from service.evaluation.slice_names import SliceName
from service.example_log import Place
from service.feedback.keeping import Served
from service.feedback.service import Feedback
from service.feedback.waiting import Labelled
from service.labelled import NewLabel
from service.models import OpenModel
from service.settings import Settings
from service.updates import NO_RESULTS, Status, UpdateResults, results_of

SHOWN_STATUS = {"S": "shown", "A": "duplicate", "U": "unknown"}
_STATUS: Mapping[str, Status] = {
    "W": "waiting",
    "G": "waiting",
    "N": "sampled_out",
    "T": "late",
    "D": "duplicate",
    "E": "duplicate",
    "C": "conflict",
    "U": "unknown",
}
_UNSHOWN = "GE"


async def keep_predictions(
    feedback: Feedback,
    model: OpenModel,
    batch: ExampleBatch,
    margins: npt.NDArray[np.float64],
    ids: Sequence[str | None] | None,
    slice_names: Mapping[int, SliceName],
    elsewhere: Callable[[], Awaitable[str]] | None,
) -> tuple[list[str], list[bool]]:
    """Under which ids, and whether each waits for its label now. `elsewhere`: see Served.

    Raises PredictionConflict where other predictions were kept under some of the ids.
    """
    replica, keeper = model.mirror.replica, feedback.of(model).predictions
    look = ids is not None and any(ids)
    served = Served(batch, margins, ids, replica.commit, replica.token, look, slice_names, elsewhere)
    texts, letters = await keeper.keep(served) if model.config.feedback.wait else keeper.keep_soon(served)
    if "X" in letters:
        raise PredictionConflict([text for text, one in zip(texts, letters, strict=True) if one == "X"])
    return texts, [letter not in "AF" for letter in letters]


async def show(
    feedback: Feedback, model: OpenModel, elsewhere: AsyncIterator[OpenModel], ids: Sequence[str]
) -> list[str]:
    """What became of each: see SHOWN_STATUS. Raises what Feedback.expose raises."""
    letters = await feedback.expose(model, ids)
    if "U" in letters:
        async for other in elsewhere:
            missing = [k for k, letter in enumerate(letters) if letter == "U"]
            found = await feedback.expose(other, [ids[k] for k in missing])
            for k, letter in zip(missing, found, strict=True):
                letters[k] = letter
            if "U" not in letters:
                break
    return [SHOWN_STATUS[letter] for letter in letters]


async def take_labels(
    feedback: Feedback,
    model: OpenModel,
    elsewhere: AsyncIterator[OpenModel],
    before: AsyncIterator[OpenModel],
    labels: Sequence[NewLabel],
    settings: Settings,
    wait: bool,
) -> UpdateResults:
    """Durable when it returns. `elsewhere`: who may know a prediction that the model does not. `before`: who
    may have kept the same prediction, and been told of its impression, though the model knows it too.

    Raises what Feedback.label raises.
    """
    if not labels:
        return NO_RESULTS
    deadline = time.monotonic() + settings.update_timeout_seconds
    answers = await feedback.label(model, labels, deadline)
    results = await _results(model, labels, answers, deadline, wait)
    rows = [k for k, answer in enumerate(answers) if answer.letter in _UNSHOWN]
    while rows and (other := await anext(before, None)):
        told = await feedback.label(other, [labels[k] for k in rows], deadline)
        taken = {k: one for k, one in zip(rows, told, strict=True) if one.letter not in _UNSHOWN + "U"}
        theirs = [labels[k] for k in taken], [*taken.values()]
        results.put([*taken], await _results(other, *theirs, deadline, wait))
        rows = [k for k in rows if k not in taken]
    if "unknown" in results.statuses:
        async for other in elsewhere:
            missing = [k for k, status in enumerate(results.statuses) if status == "unknown"]
            found = await _take(feedback, other, [labels[k] for k in missing], deadline, wait)
            results.put(missing, found)
            if "unknown" not in results.statuses:
                break
    return results


async def _take(
    feedback: Feedback, model: OpenModel, labels: Sequence[NewLabel], deadline: float, wait: bool
) -> UpdateResults:
    answers = await feedback.label(model, labels, deadline)
    return await _results(model, labels, answers, deadline, wait)


async def _results(
    model: OpenModel, labels: Sequence[NewLabel], answers: Sequence[Labelled], deadline: float, wait: bool
) -> UpdateResults:
    """A repeated label is waited for as well: its first try may have been this request's, unanswered."""
    if wait:
        for entry in {answer.place[0] for answer in answers if answer.place and answer.letter in "JPD"}:
            await model.outcomes.learned(entry, deadline)
    placed = Placed([_place(answer) for answer in answers], [label.prediction_id for label in labels])
    known = results_of(model, placed, np.array([label.label for label in labels], np.uint8))
    statuses = [
        _STATUS.get(answer.letter, status) for answer, status in zip(answers, known.statuses, strict=True)
    ]
    return known._replace(statuses=statuses, id_field="id")


def refuse_single(labelled: UpdateResults) -> None:
    """A label that comes alone and is not taken is an error. Raises UnknownPrediction, LabelConflict."""
    if labelled.statuses == ["unknown"]:
        raise UnknownPrediction(labelled.ids[0])
    if labelled.statuses == ["conflict"]:
        raise LabelConflict(labelled.ids[0])


def _place(answer: Labelled) -> Place:
    entry, offset = answer.place or (None, 0)
    return Place(entry, offset, duplicate=answer.letter == "D")

"""What finds lost and doubled events finds them."""

from __future__ import annotations

import numpy as np
import pytest

from lab.simulation.accounting import expected_examples
from lab.simulation.traffic import Answer
from model_core.examples.batch import ExampleBatch
from service.example_log.ids import packed_id
from service.storage.records import LogEntry, LogId
from tests.support.soak import audit

DROP = {"late": "drop", "unshown_seconds": 30, "learn_at": "window_close", "negative_sample_rate": 1}
APPEND = DROP | {"late": "append"}
SHOWN = [Answer(1.0, "predict", "logged", 1), Answer(1.1, "impressions", "shown", 1)]
CLICK = Answer(1.5, "update", "waiting", 1)
LATE = Answer(9.0, "update", "late", 2)
APPENDED = Answer(9.0, "update", "appended", 1)
UNKNOWN = [Answer(1.0, "predict", "logged", 1), Answer(1.1, "impressions", "unknown", 1)]
UNLOGGED = [Answer(1.0, "predict", "not_logged", 1), Answer(1.1, "impressions", "unknown", 1)]


def log(*examples: tuple[str, int]) -> list[LogEntry]:
    """An entry for each (prediction id, label)."""
    return [
        LogEntry(
            LogId(number + 1, 0),
            number,
            1,
            ExampleBatch(
                np.array([0, 1]),
                np.array([7], np.uint32),
                np.ones(0),
                np.array([label], np.float64),
                prediction_ids=[packed_id(text)],
            ).to_bytes(),
        )
        for number, (text, label) in enumerate(examples)
    ]


@pytest.mark.parametrize(
    ("answers", "labels", "feedback", "expected"),
    [
        pytest.param(SHOWN, [0], DROP, "", id="no-click"),
        pytest.param([*SHOWN, CLICK], [1], DROP, "", id="click"),
        pytest.param([*SHOWN, LATE], [0], DROP, "", id="late-click"),
        pytest.param([*SHOWN, APPENDED], [0, 1], APPEND, "", id="late-click-appended"),
        pytest.param(UNLOGGED, [], DROP, "", id="not-logged"),
        pytest.param(SHOWN, [], DROP, "lost", id="impression-lost"),
        pytest.param([*SHOWN, CLICK], [0], DROP, "lost", id="click-lost"),
        pytest.param([*SHOWN, APPENDED], [0], APPEND, "lost", id="late-click-lost"),
        pytest.param(UNKNOWN, [], DROP, "lost", id="prediction-lost"),
        pytest.param(SHOWN, [0, 0], DROP, "doubled", id="impression-doubled"),
        pytest.param([*SHOWN, APPENDED], [0, 1, 1], APPEND, "doubled", id="late-click-doubled"),
        pytest.param([*SHOWN, LATE], [1], DROP, "wrong", id="late-click-learned"),
        pytest.param([*SHOWN, CLICK], [0, 1], DROP, "wrong", id="both-labels"),
    ],
)
def test_an_audit_names_what_the_log_lacks_or_has_too_often(
    answers: list[Answer], labels: list[int], feedback: dict[str, object], expected: str
) -> None:
    found = audit(log(*(("i", label) for label in labels)), {"i": answers}, [], feedback)
    assert found.problems.partition(":")[0] == expected
    assert (f"{expected}: i: predict" in found.problems) == bool(expected)


def test_an_audit_reports_foreign_examples_and_missing_updates() -> None:
    found = audit(log(("i", 0)), {}, ["e"], DROP)
    assert found.lost == ["update e, in the log: nowhere"]
    assert len(found.wrong) == 1


@pytest.mark.parametrize(
    ("answers", "feedback", "expected"),
    [
        (SHOWN, DROP, (0, 1, 1)),
        ([*SHOWN, CLICK], APPEND, (1, 0, 0)),
        ([*SHOWN, APPENDED], APPEND, (1, 1, 1)),
        ([*SHOWN, Answer(8.9, "update", "duplicate", 1), APPENDED], APPEND, (1, 1, 1)),
        ([*SHOWN, LATE], DROP, (0, 1, 1)),
        (UNLOGGED, DROP, (0, 0, 0)),
        ([*SHOWN, CLICK], APPEND | {"learn_at": "arrival", "window_seconds": 1}, (1, 0, 1)),
        ([*SHOWN, APPENDED], APPEND | {"learn_at": "arrival", "window_seconds": 1}, (1, 1, 1)),
        (SHOWN, DROP | {"negative_sample_rate": 1e-6}, (0, 0, 0)),
        ([*SHOWN, CLICK], DROP | {"negative_sample_rate": 1e-6}, (1, 0, 0)),
    ],
)
def test_what_should_be_learned_follows_from_the_answers(
    answers: list[Answer], feedback: dict[str, object], expected: tuple[int, int, int]
) -> None:
    assert expected_examples({"i": answers}, feedback) == expected

import json
import logging
import sys

import pytest

from service.telemetry.logs import HumanFormatter, JsonFormatter, StartFailure


def record(message: str = "committed %d", *args: object, **extra: object) -> logging.LogRecord:
    logger = logging.getLogger("service.learner")
    return logger.makeRecord(
        logger.name, logging.WARNING, __file__, 1, message, args, None, extra=extra or None
    )


def test_a_json_line_is_one_object_with_the_extra_fields() -> None:
    text = JsonFormatter("api 2").format(record("committed %d\nexamples é", 3, model="default", slots=5))
    assert "\n" not in text
    line = json.loads(text)
    assert line["message"] == "committed 3\nexamples é"
    assert (line["level"], line["logger"], line["role"]) == ("warning", "service.learner", "api 2")
    assert (line["model"], line["slots"]) == ("default", 5)
    assert line["time"].endswith("+00:00")


def test_an_exception_stays_within_its_json_line() -> None:
    failing = record("failed")
    try:
        raise ValueError("bad\nvalue")
    except ValueError:
        failing.exc_info = sys.exc_info()
    text = JsonFormatter().format(failing)
    assert "\n" not in text
    assert "ValueError: bad\nvalue" in json.loads(text)["exception"]


def test_an_extra_field_cannot_hide_a_standard_one() -> None:
    assert json.loads(JsonFormatter().format(record("text", time=0, role="x")))["time"] != 0


def test_a_value_unknown_to_json_is_written_as_text() -> None:
    assert json.loads(JsonFormatter().format(record("text", path=ValueError("x"))))["path"] == "x"


def test_a_human_line_has_the_level_the_role_and_the_fields() -> None:
    text = HumanFormatter("learner").format(record("committed %d", 3, model="default"))
    assert text.endswith("WARNING [learner] service.learner: committed 3 (model=default)")


@pytest.mark.parametrize(("level", "written"), [("INFO", False), ("DEBUG", True)])
def test_the_traceback_of_a_failed_start_is_logged_at_debug(level: str, written: bool) -> None:
    failure = StartFailure()
    text = "Traceback (most recent call last):\n  File ...\nservice.errors.NotFit: no such thing\n"
    root = logging.getLogger()
    before = root.level
    root.setLevel(level)
    try:
        assert failure.filter(record(text)) is written
        assert failure.filter(record("other")) is True
    finally:
        root.setLevel(before)
    assert failure.reason == "no such thing"

"""What `ftrl log find` tells of an id."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from tests.service.api.conftest import LiveApi
from tests.support.commands import run

FEEDBACK = {"exposure": "on_predict", "learn_at": "arrival"}


@pytest.fixture
def model(api: httpx.Client) -> Iterator[str]:
    api.put("/models/sought", json={"feedback": FEEDBACK}).raise_for_status()
    yield "/models/sought"
    api.delete("/models/sought")


def find(live_api: LiveApi, identifier: str) -> tuple[int, str, str]:
    where = ("--model", "sought", "--redis-url", str(live_api.settings.redis_url))
    done = run("log", "find", identifier, *where)
    return done.returncode, done.stdout, done.stderr


def test_a_label_that_was_sent_twice_is_one_example(api: httpx.Client, model: str, live_api: LiveApi) -> None:
    for identifier in ("other", "view-1"):
        logged = api.post(f"{model}/predict", json={"features": {}, "log": True, "id": identifier})
        assert logged.json()["logged"] is True
    statuses = [
        api.post(f"{model}/update", json={"id": "view-1", "label": 0.3, "weight": 2}).json()["status"]
        for _ in range(2)
    ]
    assert statuses == ["learned", "duplicate"]
    code, out, _ = find(live_api, "view-1")
    assert code == 0
    assert re.fullmatch(r"\d+-\d+  example 0  label 0.3  weight 2  learned\n", out)
    code, out, err = find(live_api, "other")
    assert (code, out) == (1, "")
    assert err == "ftrl: the log of sought has no example of 'other', not any more or not yet\n"


def test_an_event_is_found_too(api: httpx.Client, model: str, live_api: LiveApi) -> None:
    example = {"features": {}, "label": 0}
    sent = [{**example, "event_id": "a"}, example, {**example, "event_id": "b"}]
    api.post(f"{model}/update", json={"examples": sent}).raise_for_status()
    assert re.fullmatch(r"\d+-\d+  example 2  label 0  weight 1  learned\n", find(live_api, "b")[1])

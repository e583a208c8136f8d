"""The stream of live figures: what it says, who may listen, and that it ends when it should."""

from __future__ import annotations

import contextlib
from typing import Any

import httpx
import numpy as np
import pytest

from tests.service.api.conftest import ApiFactory
from tests.service.api.test_health import samples
from tests.support.event_stream import listening, next_of
from tests.support.problem_replies import problem
from tests.support.servers import ServerProcess
from tests.support.waiting import wait_until


def test_the_first_figures_come_at_once_and_more_as_the_model_learns(api: httpx.Client, model: str) -> None:
    name = model.removeprefix("/models/")
    with listening(api, name) as events:
        first = next_of(events)
        assert (first["model"], first["t"]) == (name, 0)
        assert name in first["models"]
        assert first["verdict"]["checks"][3]["text"] == "Needs 50 clicks to judge: 0 so far."
        api.post(f"{model}/update", json={"examples": [{"features": {}, "label": 1}] * 9}).raise_for_status()
        api.post(f"{model}/predict", json={"features": {}}).raise_for_status()
        while (later := next_of(events))["t"] != 9 or not later["rates"]["predictions"]:
            pass
    assert later["incarnation"] == first["incarnation"]
    assert later["lag"] == {"examples": 0, "seconds": 0}
    assert later["rates"]["predict"]["requests"] >= 1
    assert [check["name"] for check in later["verdict"]["checks"]] == ["up", "fast", "learning", "right"]


@pytest.mark.slow
def test_a_model_that_follows_noise_is_not_called_right(api: httpx.Client, model: str) -> None:
    random = np.random.default_rng(1)
    values, clicks = random.integers(0, 12_000, (36_000, 3)), random.random(36_000) < 0.5
    examples = [
        {"features": {f"f{number}": f"v{value}" for number, value in enumerate(row)}, "label": int(click)}
        for row, click in zip(values.tolist(), clicks, strict=True)
    ]
    hyper = {"rate": {"kind": "adaptive", "alpha": 0.5, "beta": 1.0}, "l1": 0}
    head = "× the loss of always predicting the click rate"
    assert (
        level_once(head, api, f"{model}-noise", {"hyper": hyper, "hashing": {"bits": 18}}, examples)
        == "watch"
    )


def test_a_model_that_is_right_only_in_total_is_not_called_right(api: httpx.Client, model: str) -> None:
    random = np.random.default_rng(1)
    rates = {"phone": 0.8, "desktop": 0.2}
    devices, chances = random.choice(list(rates), 4_000).tolist(), random.random(4_000)
    examples = [
        {"features": {"device": device}, "label": int(chance < rates[device])}
        for device, chance in zip(devices, chances, strict=True)
    ]
    hyper = {"rate": {"kind": "adaptive", "alpha": 0.001, "beta": 1.0}}
    specification = {"hyper": hyper, "evaluation": {"slices": ["device"]}, "hashing": {"bits": 10}}
    head = "× the clicks where device = "
    assert level_once(head, api, f"{model}-devices", specification, examples) == "watch"


def level_once(
    head: str, api: httpx.Client, path: str, specification: dict[str, Any], examples: list[dict[str, Any]]
) -> str:
    """The level of the check `right` of a model that learns these, once its head has these words: the figures
    follow the model's rounds.
    """
    api.put(path, json=specification).raise_for_status()
    for start in range(0, len(examples), 9_000):
        api.post(f"{path}/update", json={"examples": examples[start : start + 9_000]}).raise_for_status()

    def level() -> str | None:
        right: dict[str, str] = next_of(events)["verdict"]["checks"][3]
        return right["level"] if head in right["head"] else None

    with listening(api, path.removeprefix("/models/")) as events:
        found = wait_until(level)
    api.delete(path).raise_for_status()
    return found


def test_figures_are_not_known_before_redis_has_answered(
    fresh_valkey: ServerProcess, start_api: ApiFactory
) -> None:
    api = start_api(fresh_valkey).client
    api.post("/update", json={"examples": [{"features": {}, "label": 1}] * 60}).raise_for_status()
    fresh_valkey.stop()
    with listening(api) as events:
        event = next(events)
        while event.kind != "live":
            assert event.kind != "figures"
            event = next(events)
    right = event.content["verdict"]["checks"][3]
    assert right["text"] == "Redis has not answered: the figures are not known."


def test_the_rates_are_those_of_the_model_alone(api: httpx.Client, model: str) -> None:
    with listening(api, model.removeprefix("/models/")) as events:
        next_of(events)
        api.post("/predict", json={"features": {}}).raise_for_status()
        assert next_of(events)["rates"]["predictions"] == 0


def test_a_stream_of_an_unknown_model_is_refused_as_elsewhere(api: httpx.Client) -> None:
    problem(api.get("/models/nobody/live"), 404, "unknown_model")
    problem(api.get("/models/-/live"), 422, "invalid_model_name")


def test_a_stream_ends_when_its_model_is_deleted(api: httpx.Client) -> None:
    api.put("/models/passing", json={"hashing": {"bits": 10}}).raise_for_status()
    with listening(api, "passing") as events:
        next_of(events)
        api.delete("/models/passing").raise_for_status()
        *_, last = events
    assert last.kind == "gone"
    assert "passing" in last.content["detail"]


def test_a_recreated_model_continues_as_another(api: httpx.Client) -> None:
    specification = {"hashing": {"bits": 10}}
    api.put("/models/again", json=specification).raise_for_status()
    with listening(api, "again") as events:
        before = next_of(events)
    api.delete("/models/again").raise_for_status()
    api.put("/models/again", json=specification).raise_for_status()
    with listening(api, "again") as events:
        assert next_of(events)["incarnation"] != before["incarnation"]
    api.delete("/models/again")


def test_an_alias_is_followed_to_whichever_model_it_means(api: httpx.Client, model: str) -> None:
    api.put("/aliases/current", json={"model": "default"}).raise_for_status()
    with listening(api, "current") as events:
        assert next_of(events)["model"] == "default"
        name = model.removeprefix("/models/")
        api.put("/aliases/current", json={"model": name}).raise_for_status()
        while (live := next_of(events))["model"] != name:
            pass
        assert live["aliases"]["current"] == name
    api.delete("/aliases/current").raise_for_status()


def test_only_so_many_may_listen(valkey: ServerProcess, start_api: ApiFactory) -> None:
    api = start_api(valkey, max_live_streams=2).client
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(listening(api)) for _ in range(2)]
        for events in streams:
            next_of(events)
        refused = api.get("/models/default/live")
        problem(refused, 503, "stream_refused")
        assert refused.headers["retry-after"]
        assert samples(api)[("ftrl_live_streams",)] == 2
    wait_until(lambda: samples(api)[("ftrl_live_streams",)] == 0)
    with listening(api) as events:
        next_of(events)


def test_an_open_stream_does_not_hold_up_a_stop(valkey: ServerProcess, start_api: ApiFactory) -> None:
    api = start_api(valkey)
    with listening(api.client) as events:
        next_of(events)
        api.stop()  # waits for every reply that has begun, for as long as it takes
        assert {event.kind for event in events} <= {"live", "figures", "slices"}


@pytest.mark.slow
def test_a_stream_counts_as_a_request_that_was_answered_when_it_began(
    valkey: ServerProcess, start_api: ApiFactory
) -> None:
    api = start_api(valkey).client
    labels = ("method=GET", "route=/models/{name}/live", "status=200")
    with listening(api) as events:
        for _ in range(3):
            next_of(events)
    wait_until(lambda: ("ftrl_http_request_duration_seconds_count", *labels) in samples(api))
    longest = ("ftrl_http_request_duration_seconds_bucket", "le=1.0", *labels)
    assert samples(api)[longest] == 1, "of more than two seconds"


@pytest.mark.slow
def test_a_redis_that_is_away_makes_the_figures_stale(
    fresh_valkey: ServerProcess, start_api: ApiFactory
) -> None:
    api = start_api(fresh_valkey, stale_after_seconds=0.5).client
    with listening(api) as events:
        assert next_of(events)["learner"] is not None
        fresh_valkey.pause()
        while (away := next_of(events))["predict"] != "stale":
            pass
        assert away["verdict"]["level"] == "bad"
        assert away["verdict"]["headline"].startswith("Stale: Redis does not answer")
        assert (away["lag"], away["learner"]) == (None, None)
        fresh_valkey.resume()
        while next_of(events)["verdict"]["checks"][0]["level"] == "bad":
            pass


@pytest.mark.parametrize("path", ["/dashboard/nothing.js", "/dashboard/", "/dashboard/../routes.py"])
def test_only_the_files_of_the_page_are_served(api: httpx.Client, path: str) -> None:
    problem(api.get(path), 404, "not_found")


def test_the_page_may_run_nothing_but_its_own_files(api: httpx.Client) -> None:
    page = api.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "content-security-policy" not in api.get("/livez").headers
    assert api.head("/").status_code == 200


def test_a_file_that_has_not_changed_is_not_sent_again(api: httpx.Client) -> None:
    for path in ("/", "/dashboard/style.css", "/dashboard/js/main.js", "/dashboard/uplot/uPlot.iife.min.js"):
        first = api.get(path)
        assert first.headers["cache-control"] == "no-cache"
        again = api.get(path, headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")

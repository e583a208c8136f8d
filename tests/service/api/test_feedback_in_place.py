"""PATCH /models/{name}: how labels are waited for, changed while a model is asked and learns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from service.storage.records import ALIASES
from tests.service.api.conftest import ApiFactory, LiveApi
from tests.support.commands import run
from tests.support.problem_replies import problem
from tests.support.servers import ServerProcess
from tests.support.waiting import wait_until

CONFIG = {"hashing": {"bits": 12}, "feedback": {"log": True, "max_bytes": 1 << 16}}
FEATURES = {f"f{number}": "v" for number in range(20)}


@pytest.fixture
def path(api: httpx.Client, request: pytest.FixtureRequest) -> Iterator[str]:
    path = f"/models/p-{abs(hash(request.node.nodeid)):x}"
    api.put(path, json=CONFIG).raise_for_status()
    yield path
    api.delete(path)


def patch(api: httpx.Client, path: str, **fields: Any) -> dict[str, Any]:
    reply = api.patch(path, json={"feedback": fields})
    assert reply.status_code == 200, reply.text
    feedback: dict[str, Any] = reply.json()["feedback"]
    return feedback


def logged(api: httpx.Client, path: str, count: int = 1) -> bool:
    body = {"instances": [{"features": FEATURES}] * count}
    reply = api.post(f"{path}/predict", json=body)
    assert reply.status_code == 200, reply.text
    return bool(reply.json().get("logged", False))


def max_bytes(api: httpx.Client, model: str) -> float:
    found = re.search(
        rf'^ftrl_feedback_limit_bytes{{model="{model}"}} (\S+)', api.get("/metrics").text, re.MULTILINE
    )
    return float(found[1]) if found else 0.0


@pytest.mark.slow
def test_a_change_is_in_force_in_every_process_without_a_restart(
    fresh_valkey: ServerProcess, start_api: ApiFactory
) -> None:
    one, other = start_api(fresh_valkey), start_api(fresh_valkey, run_learner=False)
    one.client.put("/models/ads", json=CONFIG).raise_for_status()
    workers = (one.client, other.client)
    wait_until(lambda: not logged(one.client, "/models/ads", 50))
    assert not logged(other.client, "/models/ads")
    assert patch(other.client, "/models/ads", max_bytes=1 << 24)["max_bytes"] == 1 << 24
    assert [logged(worker, "/models/ads") for worker in workers] == [True, True]
    assert other.client.get("/models/ads").json()["feedback"]["max_bytes"] == 1 << 24
    wait_until(lambda: one.client.get("/models/ads").json()["feedback"]["max_bytes"] == 1 << 24)
    wait_until(lambda: max_bytes(one.client, "ads") == 1 << 24)
    patch(one.client, "/models/ads", log=False)
    wait_until(lambda: not logged(other.client, "/models/ads"))
    patch(one.client, "/models/ads", log=True, wait=False)
    wait_until(lambda: logged(other.client, "/models/ads"))


@pytest.mark.slow
def test_a_shorter_window_closes_what_waits(fresh_valkey: ServerProcess, start_api: ApiFactory) -> None:
    api = start_api(fresh_valkey).client
    feedback = {"exposure": "on_predict", "window_seconds": 120, "log": True}
    api.put("/models/ads", json={"hashing": {"bits": 12}, "feedback": feedback}).raise_for_status()
    for number in range(3):
        body = {"features": FEATURES, "id": str(number)}
        assert api.post("/models/ads/predict", json=body).json()["logged"]
    assert api.post("/models/ads/update", json={"id": "1", "label": 1}).json()["status"] == "waiting"
    patch(api, "/models/ads", window_seconds=1)
    wait_until(lambda: bool(api.get("/models/ads").json()["t"] == 3))
    again = api.post("/models/ads/update", json={"id": "1", "label": 1}).json()
    assert (again["status"], again["probability"] is not None) == ("duplicate", True)


def test_two_changes_at_once_both_count(api: httpx.Client, path: str) -> None:
    fields: list[dict[str, Any]] = [{"window_seconds": 60.0}, {"late": "append"}, {"grace_seconds": 5.0}]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda one: patch(api, path, **one), fields))
    feedback = patch(api, path)
    assert (feedback["window_seconds"], feedback["late"], feedback["grace_seconds"]) == (60, "append", 5)


@pytest.mark.parametrize(
    ("body", "path_of_error", "text"),
    [
        ({"hyper": {"l1": 1}}, "hyper", "only `feedback` changes in place; clone the model"),
        ({"hashing": {"bits": 13}}, "hashing", "create another model"),
        ({"feedback": {}, "evaluation": {}}, "evaluation", "fixed at creation"),
        ({"snapshots": {}}, "snapshots", "fixed at creation"),
        ({"color": "red"}, "color", "what changes in place is `feedback`"),
        ({"feedback": {"color": "red"}}, "feedback.color", "a feedback has log, wait"),
        ({"feedback": {"max_bytes": 1}}, "feedback.max_bytes", "must be an integer from 65536"),
        ({"feedback": {"window_seconds": "1h"}}, "feedback.window_seconds", "must be a number from 1"),
        ({"feedback": None}, "feedback", "object"),
    ],
)
def test_errors_are_reported_and_nothing_is_changed(
    api: httpx.Client, path: str, body: Any, path_of_error: str, text: str
) -> None:
    before = api.get(path).json()
    document = problem(api.patch(path, json=body), 422, "unprocessable")
    assert document["errors"][0]["path"] == path_of_error
    assert text in document["errors"][0]["detail"]
    assert api.get(path).json() == before


def test_what_does_not_change_in_place_says_what_to_do(api: httpx.Client, path: str) -> None:
    refused = problem(
        api.patch(path, json={"feedback": {"exposure": "on_predict"}}), 409, "fixed_at_creation"
    )
    assert "Clone the model with 'on_predict' and switch an alias" in refused["detail"]
    problem(api.patch("/models/nobody-here", json={"feedback": {}}), 404, "unknown_model")
    alias = f"a-{path.rpartition('-')[2]}"
    api.put(f"/aliases/{alias}", json={"model": path.removeprefix("/models/")}).raise_for_status()
    problem(api.patch(f"/models/{alias}", json={"feedback": {"log": False}}), 409, "alias_conflict")
    api.delete(f"/aliases/{alias}").raise_for_status()
    assert api.get(path).json()["feedback"]["log"] is True


def test_the_put_that_created_it_stays_true_and_undoes_nothing(api: httpx.Client, path: str) -> None:
    changed = patch(api, path, max_bytes=1 << 20, window_seconds=60)
    for feedback in (CONFIG["feedback"], changed):
        again = api.put(path, json=CONFIG | {"feedback": feedback})
        assert (again.status_code, again.json()["feedback"]) == (200, changed)
    third = problem(
        api.put(path, json=CONFIG | {"feedback": {"log": True, "max_bytes": 1 << 18}}), 409, "model_conflict"
    )
    assert "feedback.window_seconds = 60.0, not 1800.0; PATCH changes that in place" in third["detail"]
    problem(api.put(path, json=CONFIG | {"hyper": {"l1": 7}}), 409, "model_conflict")


@pytest.mark.slow
def test_while_redis_is_away_it_is_refused_and_the_same_again_is_safe(
    fresh_valkey: ServerProcess, start_api: ApiFactory
) -> None:
    api = start_api(fresh_valkey).client
    api.put("/models/ads", json=CONFIG).raise_for_status()
    fresh_valkey.pause()
    refused = api.patch("/models/ads", json={"feedback": {"max_bytes": 1 << 20}})
    problem(refused, 503, "state_unavailable")
    assert refused.headers["Retry-After"] == "1"
    fresh_valkey.resume()
    wait_until(lambda: api.patch("/models/ads", json={"feedback": {"max_bytes": 1 << 20}}).status_code == 200)
    assert api.get("/models/ads").json()["feedback"]["max_bytes"] == 1 << 20


def test_a_server_without_memory_takes_it(fresh_valkey: ServerProcess, start_api: ApiFactory) -> None:
    api = start_api(fresh_valkey).client
    api.put("/models/ads", json=CONFIG).raise_for_status()
    assert logged(api, "/models/ads", 5)
    with fresh_valkey.client() as redis:
        redis.config_set("maxmemory", 1 << 20)
        assert patch(api, "/models/ads", unshown_seconds=1, window_seconds=60)["window_seconds"] == 60
        wait_until(lambda: not logged(api, "/models/ads"))
        assert patch(api, "/models/ads", max_bytes=1 << 22)["max_bytes"] == 1 << 22
        redis.config_set("maxmemory", 0)
    wait_until(lambda: logged(api, "/models/ads"))


def test_a_longer_window_extends_how_long_an_alias_remembers_a_model(
    fresh_valkey: ServerProcess, start_api: ApiFactory
) -> None:
    api = start_api(fresh_valkey).client
    for model in ("first", "second"):
        api.put(f"/models/{model}", json=CONFIG).raise_for_status()
        api.put("/aliases/live", json={"model": model}).raise_for_status()
    with fresh_valkey.client() as redis:
        before = int(redis.hget(ALIASES, "live/first"))
        patch(api, "/models/first", window_seconds=36_000)
        after = int(redis.hget(ALIASES, "live/first"))
        assert after >= before + (36_000 - 1800)
        patch(api, "/models/first", window_seconds=60)
        assert int(redis.hget(ALIASES, "live/first")) >= after, "what was logged before may wait so long"
    assert api.get("/aliases").json()["aliases"] == {"live": "second"}


def test_clones_and_snapshots_have_the_settings_in_force(api: httpx.Client, path: str) -> None:
    early = api.post(f"{path}/snapshots").json()
    changed = patch(api, path, window_seconds=90)
    clone = f"{path}-clone"
    api.post(f"{path}/clone", json={"name": clone.removeprefix("/models/")}).raise_for_status()
    assert api.get(clone).json()["feedback"] == changed
    assert patch(api, clone, window_seconds=80)["window_seconds"] == 80
    api.delete(clone).raise_for_status()
    wait_until(lambda: bool(api.post(f"{path}/snapshots").json()["config"]["feedback"] == changed))
    body = {"snapshot": early["id"], "replay_log": False}
    api.post(f"{path}/restore", json=body).raise_for_status()
    wait_until(lambda: "-1-" in api.get(path).json()["revision"])
    assert api.get(path).json()["feedback"] == changed
    assert logged(api, path)
    again = api.put(path, json=CONFIG)
    assert (again.status_code, again.json()["feedback"]) == (200, changed)


@pytest.mark.slow
def test_the_command_shows_and_changes_it(live_api: LiveApi, api: httpx.Client, path: str) -> None:
    words = ("feedback", "--url", live_api.url, "--model", path.removeprefix("/models/"))
    changed = run(*words, '{"max_bytes": 1048576}')
    assert changed.returncode == 0, changed.stderr
    assert json.loads(changed.stdout) == json.loads(run(*words).stdout) == api.get(path).json()["feedback"]
    assert json.loads(changed.stdout)["max_bytes"] == 1048576
    refused = run(*words, '{"exposure": "on_predict"}')
    assert (refused.returncode, "Clone the model" in refused.stderr) == (1, True)
    assert run(*words, "{").returncode == 2

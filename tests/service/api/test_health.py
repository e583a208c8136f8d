"""/livez, /readyz and /metrics, and what they say while Redis is away."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import httpx
import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families

from tests.support.problem_replies import invalid, problem
from tests.support.servers import ServerProcess
from tests.support.waiting import wait_until


def samples(api: httpx.Client) -> dict[tuple[str, ...], float]:
    """By name and sorted label values."""
    families = text_string_to_metric_families(api.get("/metrics").text)
    return {
        (s.name, *(f"{k}={v}" for k, v in sorted(s.labels.items()))): s.value
        for f in families
        for s in f.samples
    }


def test_a_healthy_process_is_alive_and_ready(api: httpx.Client) -> None:
    assert api.get("/livez").json() == {"status": "alive"}
    report = api.get("/readyz")
    assert report.status_code == 200
    assert (report.json()["predict"], report.json()["update"]) == ("fresh", "available")
    assert 0 <= report.json()["mirror_age_seconds"] < 5
    assert api.get("/readyz?for=update").status_code == 200


def test_a_server_that_persists_nothing_is_named(api: httpx.Client) -> None:
    assert any("persists nothing" in reason for reason in api.get("/readyz").json()["reasons"])
    assert samples(api)[("ftrl_redis_persists",)] == 0


def test_readiness_for_what_there_is_not_is_refused(api: httpx.Client) -> None:
    invalid(api.get("/readyz?for=lunch"), "for", "invalid_value")


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_load_balancers_may_ask_with_head(api: httpx.Client, path: str) -> None:
    reply = api.head(path)
    assert (reply.status_code, reply.content) == (200, b"")


@pytest.mark.slow
def test_predictions_go_on_while_redis_is_away(fresh_valkey: ServerProcess, start_api) -> None:
    api = start_api(
        fresh_valkey,
        stale_after_seconds=0.5,
        redis_timeout_seconds=0.2,
        update_timeout_seconds=0.5,
        lease_seconds=1,
    ).client
    click = {"features": {"ad": "a"}, "label": 1, "event_id": "e"}
    wait_until(lambda: api.get("/readyz?for=update").status_code == 200)
    known = api.post("/predict", json={"features": {"ad": "a"}}).json()
    fresh_valkey.pause()
    wait_until(lambda: api.get("/readyz").json()["predict"] == "stale")
    wait_until(lambda: api.get("/readyz").json()["update"] == "unavailable")
    assert api.get("/livez").status_code == 200
    assert api.get("/readyz").status_code == 200
    assert api.get("/readyz?for=update").status_code == 503
    assert api.post("/predict", json={"features": {"ad": "a"}}).json() == known
    assert samples(api)[("ftrl_redis_up",)] == 0
    assert samples(api)[("ftrl_mirror_age_seconds", "model=default")] > 0.5

    refused = api.post("/update", json=click)
    document = problem(refused, 503, "update_unavailable")
    assert refused.headers["retry-after"]
    assert document["outcome"] in ("not_appended", "unknown")
    assert document["event_ids"] == ["e"]
    for reply in (
        api.get("/models"),
        api.put("/models/x", json={}),
        api.post("/models/x/predict", json=click),
    ):
        problem(reply, 503, "state_unavailable")
        assert reply.headers["retry-after"]
    unopened = problem(api.post("/models/x/update", json=click), 503, "update_unavailable")
    assert (unopened["outcome"], unopened["event_ids"]) == ("not_appended", [])

    fresh_valkey.resume()
    wait_until(lambda: api.get("/readyz?for=update").status_code == 200)
    wait_until(lambda: api.post("/update", json=click).json()["status"] in ("learned", "duplicate"))
    wait_until(lambda: api.get("/models/default").json()["t"] == 1)
    wait_until(lambda: api.post("/update", json=click).json()["status"] == "duplicate")
    assert api.get("/models/default").json()["t"] == 1


def test_the_process_waits_for_a_redis_that_comes_later(server_factory, start_api) -> None:
    server = server_factory(start=False)
    api = start_api(server).client
    assert api.get("/livez").status_code == 200
    report = api.get("/readyz")
    assert report.status_code == 503
    assert report.json()["predict"] == "unavailable"
    problem(api.post("/predict", json={"features": {}}), 503, "state_unavailable")
    server.start()
    wait_until(lambda: api.get("/readyz?for=update").status_code == 200)
    assert api.post("/predict", json={"features": {}}).status_code == 200


def test_a_full_log_says_when_to_retry(valkey: ServerProcess, start_api) -> None:
    api = start_api(valkey, run_learner=False, backlog_limit_examples=10).client
    example = {"features": {"ad": "a"}, "label": 1}
    assert api.post("/update?wait=false", json={"examples": [example] * 10}).status_code == 202
    refused = api.post("/update?wait=false", json=example)
    problem(refused, 429, "log_full")
    assert refused.headers["retry-after"]


def test_a_server_near_its_memory_limit_gets_no_more_examples(fresh_valkey: ServerProcess, start_api) -> None:
    api = start_api(fresh_valkey).client
    with fresh_valkey.client() as client:
        client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.02))
    wait_until(lambda: api.get("/readyz?for=update").status_code == 503)
    assert samples(api)[("ftrl_redis_shedding",)] == 1
    problem(api.post("/update", json={"features": {}, "label": 1}), 429, "log_full")
    assert api.get("/readyz").status_code == 200


def test_requests_and_examples_are_counted(api: httpx.Client, model: str) -> None:
    name = model.removeprefix("/models/")
    before = samples(api)
    for _ in range(3):
        api.post(f"{model}/predict", json={"instances": [{"features": {}}] * 2})
    api.post(f"{model}/predict", json={"features": 3})
    api.post(f"{model}/update", json={"examples": [{"features": {}, "label": 1, "event_id": "e"}] * 2})
    learned = ("ftrl_examples_learned_total", "label=1", f"model={name}")
    wait_until(lambda: samples(api).get(learned, 0) > before.get(learned, 0))
    after = samples(api)

    def gained(*key: str) -> float:
        return after[key] - before.get(key, 0)

    route = "route=/models/{name}/predict"
    count = "ftrl_http_request_duration_seconds_count"
    assert gained(count, "method=POST", route, "status=200") == 3
    assert gained(count, "method=POST", route, "status=422") == 1
    assert gained("ftrl_predictions_total", f"model={name}") == 6
    assert gained("ftrl_update_examples_total", f"model={name}", "status=learned") == 1
    assert gained("ftrl_update_examples_total", f"model={name}", "status=duplicate") == 1
    assert gained(*learned) == 1
    assert after[("ftrl_http_requests_in_progress", route)] == 0
    assert after[("ftrl_http_requests_in_progress", "route=other")] == 1  # the scrape itself


def test_unrouted_paths_do_not_become_labels(api: httpx.Client) -> None:
    for path in ("/nowhere", "/nowhere/else"):
        problem(api.get(path), 404, "not_found")
    assert not [key for key in samples(api) if any("nowhere" in part for part in key)]


def test_a_deleted_model_leaves_no_series(api: httpx.Client) -> None:
    api.put("/models/passing", json={"hashing": {"bits": 10}}).raise_for_status()
    use(api, "passing")
    api.post("/models/passing/snapshots").raise_for_status()
    wait_until(lambda: ("ftrl_model_rounds", "model=passing") in samples(api))
    assert len(series_of(api, "passing")) > 90
    api.delete("/models/passing").raise_for_status()
    wait_until(lambda: not series_of(api, "passing"))
    api.put("/models/passing", json={"hashing": {"bits": 10}}).raise_for_status()
    use(api, "passing")
    assert samples(api)[("ftrl_predictions_total", "model=passing")] == 1
    wait_until(lambda: samples(api).get(("ftrl_examples_learned_total", "label=1", "model=passing")) == 1)


def use(api: httpx.Client, model: str) -> None:
    """One prediction and one example that is learned."""
    api.post(f"/models/{model}/predict", json={"features": {"ad": "a"}}).raise_for_status()
    example = {"features": {"ad": "a"}, "label": 1}
    assert api.post(f"/models/{model}/update", json=example).json()["status"] == "learned"


def series_of(api: httpx.Client, model: str) -> list[tuple[str, ...]]:
    return [sample for sample in samples(api) if f"model={model}" in sample]


class Refusing(NamedTuple):
    """Makes a server refuse writes with an error of that code, and accept them again."""

    code: str
    begin: Callable[[redis.Redis, ServerProcess], object]
    end: Callable[[redis.Redis, ServerProcess], object]


def fail_to_save(client: redis.Redis, server: ServerProcess) -> None:
    (server.directory / "dump.rdb").mkdir()
    client.config_set("save", "3600 1000000")
    client.bgsave()
    wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")


def save(client: redis.Redis, server: ServerProcess) -> None:
    (server.directory / "dump.rdb").rmdir()
    client.bgsave()


REFUSING = [
    Refusing("MISCONF", fail_to_save, save),
    Refusing(
        "NOREPLICAS",
        lambda client, _: client.config_set("min-replicas-to-write", 1),
        lambda client, _: client.config_set("min-replicas-to-write", 0),
    ),
    Refusing(
        "READONLY",
        lambda client, _: client.replicaof("127.0.0.1", "1"),
        lambda client, _: client.replicaof("NO", "ONE"),
    ),
    Refusing(
        "OOM",
        lambda client, _: client.config_set("maxmemory", 1000),
        lambda client, _: client.config_set("maxmemory", 0),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("refusing", REFUSING, ids=lambda refusing: refusing.code)
def test_refused_writes_are_named_with_the_servers_own_words(
    any_server: ServerProcess, start_api, refusing: Refusing
) -> None:
    api = start_api(any_server, update_timeout_seconds=0.5, memory_share_limit=1.0).client
    click = {"features": {"ad": "a"}, "label": 1, "event_id": "e"}
    wait_until(lambda: api.get("/readyz?for=update").status_code == 200)
    with any_server.client() as client:
        refusing.begin(client, any_server)
        wait_until(lambda: api.get("/readyz?for=update").status_code == 503)
        report = api.get("/readyz")
        assert report.status_code == 200
        assert any(refusing.code in reason for reason in report.json()["reasons"])
        refused = api.post("/update", json=click).json()
        if refusing.code == "OOM":
            assert refused["code"] == "log_full"
        else:
            assert (refused["code"], refused["outcome"]) == ("update_unavailable", "not_appended")
            assert refusing.code in refused["detail"]
        refusing.end(client, any_server)
    wait_until(lambda: api.get("/readyz?for=update").status_code == 200)
    assert api.get("/readyz").json()["reasons"] == []
    wait_until(lambda: api.post("/update", json=click).json()["status"] in ("learned", "duplicate"))


def test_trying_a_write_leaves_nothing_in_redis(fresh_valkey: ServerProcess, start_api) -> None:
    start_api(fresh_valkey)
    with fresh_valkey.client() as client:
        assert not client.keys("*:probe")


def test_without_any_model_a_process_is_not_ready(fresh_valkey: ServerProcess, start_api) -> None:
    api = start_api(fresh_valkey).client
    api.delete("/models/default")
    wait_until(lambda: api.get("/readyz").status_code == 503)
    report = api.get("/readyz").json()
    assert (report["predict"], report["update"], report["mirror_age_seconds"]) == (
        "unavailable",
        "unavailable",
        None,
    )
    (reason,) = report["reasons"]
    assert "There is no model" in reason
    assert api.get("/readyz?for=update").status_code == 503
    other = start_api(fresh_valkey).client
    wait_until(lambda: other.get("/readyz").status_code == 200)
    other.delete("/models/default")
    other.put("/models/ads", json={}).raise_for_status()
    wait_until(lambda: api.get("/readyz").status_code == 200)


def test_a_model_that_is_not_loaded_yet_counts(fresh_valkey: ServerProcess, start_api) -> None:
    api = start_api(fresh_valkey).client
    api.put("/models/ads", json={}).raise_for_status()
    other = start_api(fresh_valkey).client
    other.delete("/models/default")
    wait_until(lambda: other.get("/readyz").json()["mirror_age_seconds"] is None)
    wait_until(lambda: other.get("/readyz").status_code == 200)


def lost(api: httpx.Client) -> bool:
    return any("has lost the model 'default'" in reason for reason in api.get("/readyz").json()["reasons"])


def test_a_lost_model_is_not_created_anew(fresh_valkey: ServerProcess, start_api) -> None:
    first = start_api(fresh_valkey)
    api = first.client
    api.post("/update", json={"features": {"ad": "a"}, "label": 1}).raise_for_status()
    with fresh_valkey.client() as client:
        client.flushall()
    wait_until(lambda: lost(api) and api.get("/readyz").status_code == 503)
    problem(api.post("/predict", json={"features": {}}), 404, "unknown_model")
    first.stop()

    restarted = start_api(fresh_valkey).client
    assert lost(restarted)
    assert restarted.get("/readyz").status_code == 503
    problem(restarted.post("/predict", json={"features": {}}), 404, "unknown_model")
    restarted.put("/models/default", json={}).raise_for_status()
    wait_until(lambda: restarted.get("/readyz").status_code == 200)
    assert not lost(restarted)


def test_a_lost_model_is_created_where_that_is_allowed(fresh_valkey: ServerProcess, start_api) -> None:
    first = start_api(fresh_valkey)
    with fresh_valkey.client() as client:
        client.flushall()
    wait_until(lambda: lost(first.client))
    first.stop()
    api = start_api(fresh_valkey, allow_new_default=True).client
    assert api.get("/readyz").status_code == 200
    assert api.post("/predict", json={"features": {}}).status_code == 200
    assert not lost(api)


@pytest.mark.slow
def test_a_deletion_ends_the_report_of_a_loss(fresh_valkey: ServerProcess, start_api) -> None:
    api, other = (start_api(fresh_valkey).client for _ in range(2))
    with fresh_valkey.client() as client:
        client.flushall()
    wait_until(lambda: lost(api) and lost(other))
    assert api.delete("/models/default").status_code == 204
    wait_until(lambda: not lost(other))
    problem(api.delete("/models/default"), 404, "unknown_model")
    assert "There is no model" in api.get("/readyz").json()["reasons"][0]


@pytest.mark.slow
def test_a_deleted_model_is_not_called_lost(fresh_valkey: ServerProcess, start_api) -> None:
    api, other = (start_api(fresh_valkey).client for _ in range(2))
    api.delete("/models/default").raise_for_status()
    wait_until(lambda: other.get("/readyz").status_code == 503)
    assert not lost(other)
    restarted = start_api(fresh_valkey).client
    assert restarted.get("/readyz").status_code == 200


@pytest.mark.slow
def test_snapshots_show_that_a_server_has_lost_its_data(
    fresh_valkey: ServerProcess, server_factory, start_api
) -> None:
    first = start_api(fresh_valkey)
    first.client.post("/update", json={"features": {"ad": "a"}, "label": 1}).raise_for_status()
    first.client.post("/models/default/snapshots", json={}).raise_for_status()
    first.stop()
    api = start_api(server_factory()).client
    report = api.get("/readyz")
    assert report.status_code == 503
    assert any("the snapshot store has" in reason for reason in report.json()["reasons"])
    api.post("/models/default/restore", json={"snapshot": "newest", "replay_log": False}).raise_for_status()
    wait_until(lambda: api.get("/readyz").json()["reasons"] == [])
    assert api.get("/readyz").status_code == 200
    assert api.get("/models/default").json()["t"] == 1

"""What waits for its label while the server is away for long, and while a model is restored."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from model_core.examples.batch import ExampleBatch
from service.example_log.ids import is_sampled, packed_id
from service.storage.records import LogEntry, ModelKeys, meta_key
from tests.conftest import ServerFactory
from tests.service.api.conftest import ApiFactory
from tests.support.servers import ServerProcess
from tests.support.waiting import wait_until

PATIENT: dict[str, Any] = {"redis_timeout_seconds": 4, "update_timeout_seconds": 25}
PATH = "/models/clicks"
LONG = {"window_seconds": 120, "unshown_seconds": 120, "grace_seconds": 120}
SHORT = {"window_seconds": 1, "unshown_seconds": 1, "grace_seconds": 1}


def create(api: httpx.Client, **feedback: Any) -> None:
    config = {"hashing": {"bits": 12}, "feedback": {"log": True, **feedback}}
    api.put(PATH, json=config).raise_for_status()


def change(api: httpx.Client, **feedback: Any) -> None:
    api.patch(PATH, json={"feedback": feedback}).raise_for_status()


def learn(api: httpx.Client, event: str) -> None:
    body = {"features": {"ad": event}, "label": 1, "event_id": event}
    assert api.post(f"{PATH}/update", json=body).json()["status"] == "learned"


def predict(api: httpx.Client, *ids: str) -> None:
    body = {"instances": [{"features": {"ad": one}, "id": one} for one in ids]}
    assert api.post(f"{PATH}/predict", json=body).json()["logged"] is True


def show(api: httpx.Client, *ids: str) -> list[str]:
    answer = api.post(f"{PATH}/impressions", json={"ids": ids})
    answer.raise_for_status()
    return [one["status"] for one in answer.json()["results"]]


def label(api: httpx.Client, *ids: str, **fields: Any) -> list[str]:
    body = {"examples": [{"id": one, "label": 1} | fields for one in ids]}
    answer = api.post(f"{PATH}/update", json=body)
    answer.raise_for_status()
    return [one["status"] for one in answer.json()["results"]]


def rounds(api: httpx.Client, number: int) -> None:
    """Waits until so many were learned."""

    def t() -> int:
        answer = api.get(PATH)
        return int(answer.json()["t"]) if answer.is_success else -1

    wait_until(lambda: t() >= number)
    assert t() == number


def learned(server: ServerProcess) -> list[tuple[bytes, int, float]]:
    """Prediction id, label and weight of the examples of the log that have such an id, sorted."""
    with server.client() as client:
        client.set_response_callback("XRANGE", lambda reply, **_: reply)
        incarnation = client.hget(meta_key("clicks"), "incarnation").decode()
        found = client.execute_command("XRANGE", ModelKeys("clicks", incarnation).log, "-", "+")
    batch = ExampleBatch.from_bytes(
        b"".join(LogEntry.parse(entry, fields).records for entry, fields in found)
    )
    weights = batch.weights.tolist() or [1.0] * len(batch)
    rows = zip(batch.prediction_ids or (), batch.labels.tolist(), weights, strict=True)
    return sorted(row for row in rows if row[0])


def rows(labels: dict[str, int], weight: float = 1.0) -> list[tuple[bytes, int, float]]:
    return sorted((packed_id(one), label, weight) for one, label in labels.items())


@pytest.mark.slow
def test_an_outage_longer_than_the_window_loses_no_click(
    server_factory: ServerFactory, start_api: ApiFactory
) -> None:
    server = server_factory(appendfsync="always")
    api = start_api(server, **PATIENT).client
    create(api, **LONG)
    predict(api, *(f"o{k}" for k in range(8)))
    assert show(api, *(f"o{k}" for k in range(6))) == ["shown"] * 6
    assert label(api, "o0", "o1", "o6") == ["waiting"] * 3, "the last before its impression"
    change(api, **SHORT)
    server.kill9()
    time.sleep(2.5)
    server.start()
    rounds(api, 6)
    assert learned(server) == rows({"o0": 1, "o1": 1, "o2": 0, "o3": 0, "o4": 0, "o5": 0})
    assert show(api, "o0", "o6", "o7") == ["duplicate", "unknown", "unknown"], "forgotten unshown"
    assert label(api, "o0", "o2", "o6") == ["duplicate", "late", "unknown"]
    rounds(api, 6)


@pytest.mark.slow
def test_what_waits_and_its_labels_survive_that_the_model_is_restored(
    fresh_valkey: ServerProcess, start_api: ApiFactory
) -> None:
    api = start_api(fresh_valkey, **PATIENT).client
    create(api, **LONG)
    learn(api, "before")
    api.post(f"{PATH}/snapshots?tag=good").raise_for_status()
    learn(api, "after")
    predict(api, *(f"r{k}" for k in range(5)))
    assert show(api, "r0", "r1", "r2") == ["shown"] * 3
    assert label(api, "r0", "r3") == ["waiting"] * 2, "the last before its impression"
    restored = api.post(f"{PATH}/restore", json={"snapshot": "good", "replay_log": False})
    assert restored.json()["t"] == 1
    predict(api, "r0", "r4")
    assert label(api, "r0", "r1") == ["duplicate", "waiting"]
    assert show(api, "r0", "r3") == ["duplicate", "shown"]
    change(api, window_seconds=1)
    rounds(api, 5)
    assert learned(fresh_valkey) == rows({"r0": 1, "r1": 1, "r2": 0, "r3": 1})
    assert label(api, "r0", "r1", "r2") == ["duplicate", "duplicate", "late"]


@pytest.mark.slow
@pytest.mark.parametrize("learn_at", ["arrival", "window_close"])
def test_sample_rate_weight_and_negative_rate_of_a_label_multiply(
    fresh_valkey: ServerProcess, start_api: ApiFactory, learn_at: str
) -> None:
    api = start_api(fresh_valkey, **PATIENT).client
    create(api, exposure="on_predict", negative_sample_rate=0.5, learn_at=learn_at, **LONG)
    chosen = [one for one in map(str, range(100)) if is_sampled(packed_id(one), 0.5)]
    left_out = next(one for one in map(str, range(100)) if one not in chosen)
    click, negative, silent = chosen[:3]
    predict(api, click, negative, silent, left_out)
    at_once = learn_at == "arrival"
    for one, said in ((click, 1), (negative, 0), (left_out, 0)):
        (status,) = label(api, one, label=said, weight=3, sample_rate=0.25)
        assert status == ("waiting" if not at_once else "sampled_out" if one == left_out else "learned")
    change(api, window_seconds=1)
    rounds(api, 3)
    assert learned(fresh_valkey) == sorted(
        [(packed_id(click), 1, 12.0), (packed_id(negative), 0, 24.0), (packed_id(silent), 0, 2.0)]
    )

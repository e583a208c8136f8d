"""Predictions of one request, of which only some find room to wait for their labels."""

from __future__ import annotations

from typing import Any

import httpx

from service.api.schemas import PredictInstancesReply
from tests.service.api.conftest import ApiFactory
from tests.support.servers import ServerProcess

CONTEXT = {f"c{number}": "v" for number in range(39)}
LEAST = 65536
PATIENT: dict[str, Any] = {"redis_timeout_seconds": 4}  # a busy machine is no outage


def create(api: httpx.Client, **feedback: Any) -> str:
    api.put("/models/small", json={"feedback": {"max_bytes": LEAST} | feedback}).raise_for_status()
    return "/models/small"


def request_of(count: int, first: str = "k") -> dict[str, Any]:
    instances = [{"features": {"ad": str(k)}, "id": f"{first}{k}"} for k in range(count)]
    return {"context": CONTEXT, "instances": instances, "log": True}


def test_each_says_whether_it_was_kept(fresh_valkey: ServerProcess, start_api: ApiFactory) -> None:
    api = start_api(fresh_valkey, **PATIENT).client
    path = create(api)
    answer = api.post(f"{path}/predict", json=request_of(300)).json()
    PredictInstancesReply.model_validate(answer)
    assert answer["logged"] is False, "not all of them"
    logged = [one["logged"] for one in answer["predictions"]]
    assert 0 < sum(logged) < 300
    ids = [one["id"] for one in answer["predictions"]]
    shown = api.post(f"{path}/impressions", json={"ids": ids}).json()["results"]
    assert [one["status"] == "shown" for one in shown] == logged

    again = api.post(f"{path}/predict", json=request_of(2)).json()
    assert again["logged"] is True, "they are kept already"
    assert [sorted(one) for one in again["predictions"]] == [["id", "probability"]] * 2
    single = api.post(f"{path}/predict", json={"features": CONTEXT | {"ad": "another"}, "log": True}).json()
    assert single["logged"] is False


def test_those_that_are_refused_are_not_served(fresh_valkey: ServerProcess, start_api: ApiFactory) -> None:
    api = start_api(fresh_valkey, **PATIENT).client
    path = create(api)
    assert api.post(f"{path}/predict", json=request_of(2)).status_code == 200
    other = {"features": {"ad": "another"}, "id": "k1", "log": True}
    assert api.post(f"{path}/predict", json=other).status_code == 409
    assert 'ftrl_predictions_total{model="small"} 2.0' in api.get("/metrics").text

"""Promotions over HTTP: the reply, labels of earlier predictions, what the history says, and the command."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.commands import run
from tests.support.problem_replies import problem
from tests.support.waiting import wait_until

FEATURES = {"ad": "a1", "site": "s1"}
ARRIVAL = {"log": True, "learn_at": "arrival", "exposure": "explicit"}


@pytest.fixture
def challenger(api: httpx.Client, model: str) -> Iterator[str]:
    path, small = f"{model}-b", {"hashing": {"bits": 14}, "hyper": {"l2": 3.0}}
    api.put(path, json={"follows": name_of(model), **small}).raise_for_status()
    yield path
    api.delete(path)


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def bits_of(api: httpx.Client, path: str) -> int:
    described: dict[str, Any] = api.get(path).raise_for_status().json()
    return int(described["hashing"]["bits"])


def test_a_promotion_says_what_it_did_and_can_be_repeated(
    api: httpx.Client, model: str, challenger: str
) -> None:
    reply = api.post(f"{challenger}/promote", params={"number": 1}).raise_for_status().json()
    assert (reply["model"], reply["promotion"]["challenger"]) == (name_of(model), name_of(challenger))
    assert (bits_of(api, model), api.get(model).json()["revision"]) == (14, reply["revision"])
    wait_until(lambda: bits_of(api, challenger) == 12, "the challenger is what the champion was")
    again = api.post(f"{challenger}/promote", params={"number": 1}).raise_for_status().json()
    assert (again["promotion"], bits_of(api, model)) == (reply["promotion"], 14)
    for path in (model, challenger):
        assert api.get(f"{path}/promotions").json() == {"promotions": [reply["promotion"]]}
    refused = problem(api.post(f"{challenger}/promote", params={"number": 7}), 409, "challenger_refused")
    assert "number 2" in refused["detail"]
    problem(api.post(f"{model}/promote"), 409, "challenger_refused")
    problem(api.post("/models/nobody/promote"), 404, "unknown_model")
    problem(api.post(f"{challenger}/promote", params={"number": 0}), 422, "unprocessable")


def test_the_metrics_describe_the_model_that_is_there_now(
    api: httpx.Client, model: str, challenger: str
) -> None:
    def shown(path: str) -> list[str]:
        lines = [
            line for line in api.get("/metrics").text.splitlines() if line.startswith("ftrl_model_info{")
        ]
        of_model = [line for line in lines if f'model="{name_of(path)}"' in line]
        return re.findall('bits="([0-9]+)"', "".join(of_model))

    wait_until(lambda: (shown(model), shown(challenger)) == (["12"], ["14"]), "both are learned")
    api.post(f"{challenger}/promote").raise_for_status()
    wait_until(lambda: (shown(model), shown(challenger)) == (["14"], ["12"]), "they are exchanged")


def test_labels_of_predictions_before_it_are_learned_after_it(
    api: httpx.Client, model: str, challenger: str
) -> None:
    api.patch(model, json={"feedback": ARRIVAL}).raise_for_status()
    logged = api.post(f"{model}/predict", json={"features": FEATURES, "log": True}).raise_for_status().json()
    api.post(f"{model}/impressions", json={"ids": [logged["id"]]}).raise_for_status()
    api.post(f"{challenger}/promote").raise_for_status()
    labelled = api.post(f"{model}/update", json={"id": logged["id"], "label": 1}).raise_for_status().json()
    assert labelled["status"] == "learned"
    assert api.get(model).json()["t"] == 1
    wait_until(lambda: api.get(challenger).json()["t"] == 1, "the former champion has learned it, too")


def test_the_history_marks_it(api: httpx.Client, model: str, challenger: str) -> None:
    def marks() -> list[str]:
        return [mark["kind"] for mark in api.get(f"{model}/history").raise_for_status().json()["marks"]]

    api.post(f"{model}/update", json={"features": FEATURES, "label": 1}).raise_for_status()
    wait_until(lambda: "start" in marks(), "the learner has begun the history")
    api.post(f"{challenger}/promote").raise_for_status()
    wait_until(lambda: "promotion" in marks(), "the history has the promotion")
    metrics = api.get("/metrics").text
    assert f'ftrl_promotions_total{{model="{name_of(model)}"}} 1.0' in metrics


def test_the_command_promotes_and_the_way_back_is_the_same(
    api: httpx.Client, model: str, challenger: str
) -> None:
    where = ("--url", str(api.base_url))
    done = run("promote", name_of(challenger), *where)
    assert done.returncode == 0, done.stderr
    assert f"{name_of(model)} is what {name_of(challenger)} was" in done.stdout
    wait_until(lambda: bits_of(api, challenger) == 12, "the challenger is what the champion was")
    back = run("promote", name_of(challenger), *where, "--json")
    assert json.loads(back.stdout)["promotion"]["number"] == 2
    assert bits_of(api, model) == 12
    refused = run("promote", name_of(model), *where)
    assert (refused.returncode, "is no challenger" in refused.stderr) == (1, True)


def test_promotion_by_itself_is_asked_for_in_the_put(api: httpx.Client, model: str, challenger: str) -> None:
    body = {"follows": name_of(model), "hashing": {"bits": 14}, "hyper": {"l2": 3.0}}
    better = {"when": "better", "for_examples": 500}
    for promote in (better, None, better):
        api.put(challenger, json=body | {"promote": promote}).raise_for_status()
        assert api.get(challenger).json()["follows"]["promote"] == promote
    api.put(challenger, json=body).raise_for_status()
    assert api.get(challenger).json()["follows"]["promote"] is None
    for wrong in ({"when": "worse", "for_examples": 5}, {"when": "better", "for_examples": 0}, {}, "soon"):
        problem(api.put(challenger, json=body | {"promote": wrong}), 422, "unprocessable")
    problem(api.put(model, json={"promote": better}), 409, "challenger_refused")

"""/models/{name}/evaluation: what the learner tells of how good the predictions are."""

from __future__ import annotations

import random
from typing import Any

import httpx
import numpy as np
import pytest

from service.api.routes.evaluation import EvaluationReply
from tests.support.problem_replies import problem
from tests.support.waiting import wait_until

WINDOWS = ["15m", "30m", "1h", "24h", "all"]


@pytest.fixture
def name(api: httpx.Client, request: pytest.FixtureRequest):
    name = f"m-{abs(hash(request.node.nodeid)):x}"
    yield name
    api.delete(f"/models/{name}")


def clicks(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Examples of which the devices are clicked at different rates."""
    chance = random.Random(seed)
    examples = []
    for _ in range(count):
        device = chance.choice(["phone", "phone", "tablet", 'TV "big"'])
        rate = {"phone": 0.6, "tablet": 0.3}.get(device, 0.1)
        features = {"ad": f"a{chance.randrange(5)}", "device": device, "hour": chance.randrange(24)}
        examples.append({"features": features, "label": int(chance.random() < rate)})
    return examples


def told(api: httpx.Client, name: str, t: int, slices_t: int | None = None) -> dict[str, Any]:
    """Once it tells of so many rounds, and of the state."""

    def reply() -> dict[str, Any] | None:
        found: dict[str, Any] = api.get(f"/models/{name}/evaluation").json()
        counted = found["measures"] is not None and bool(found["measures"]["features_seen"]) == (t > 0)
        return found if (found["t"], found["slices_t"]) == (t, slices_t) and counted else None

    return wait_until(reply, f"an evaluation of {t} rounds")


def test_an_unknown_model_has_no_evaluation(api: httpx.Client) -> None:
    problem(api.get("/models/never/evaluation"), 404, "unknown_model")


def test_before_the_first_example_every_figure_is_null(api: httpx.Client, name: str) -> None:
    api.put(f"/models/{name}", json={"hashing": {"bits": 10}}).raise_for_status()
    reply = api.get(f"/models/{name}/evaluation").json()
    EvaluationReply.model_validate(reply)
    assert (reply["model"], reply["t"], reply["as_of"]) == (name, 0, None)
    assert list(reply["sources"]["progressive"]["windows"]) == WINDOWS
    assert reply["sources"]["served"] is None
    assert reply["slices"] == {}
    for window in reply["sources"]["progressive"]["windows"].values():
        assert (window["examples"], window["auc"], window["unweighted"]["log_loss"]) == (0, None, None)


def test_figures_are_those_of_the_predictions_in_the_replies(api: httpx.Client, name: str) -> None:
    api.put(f"/models/{name}", json={"hashing": {"bits": 12}}).raise_for_status()
    examples = clicks(2000)
    results = api.post(f"/models/{name}/update", json={"examples": examples}).json()["results"]
    p, y = np.array([r["probability"] for r in results]), np.array([e["label"] for e in examples])
    reply = told(api, name, 2000)
    EvaluationReply.model_validate(reply)
    described = api.get(f"/models/{name}").json()
    assert {k: reply["measures"][k] for k in ("features_seen", "nonzero", "density")} == {
        k: described[k] for k in ("features_seen", "nonzero", "density")
    }
    for window in reply["sources"]["progressive"]["windows"].values():
        assert (window["examples"], window["clicks"]) == (2000, y.sum())
        assert window["log_loss"] == pytest.approx(np.mean([r["loss"] for r in results]))
        assert window["calibration_ratio"] == pytest.approx(p.sum() / y.sum())
        assert sum(bucket["examples"] for bucket in window["reliability"]) == 2000
        assert window["unweighted"]["auc"] == window["auc"]


def test_weighted_and_unweighted_figures_are_distinguished(api: httpx.Client, name: str) -> None:
    api.put(f"/models/{name}", json={"hashing": {"bits": 12}}).raise_for_status()
    examples = [e | ({} if e["label"] else {"sample_rate": 0.1}) for e in clicks(1000)]
    api.post(f"/models/{name}/update", json={"examples": examples}).raise_for_status()
    window = told(api, name, 1000)["sources"]["progressive"]["windows"]["all"]
    rate = window["unweighted"]["base_rate"]
    assert rate == pytest.approx(np.mean([e["label"] for e in examples]))
    assert window["base_rate"] == pytest.approx(rate / (rate + 10 * (1 - rate)))


def test_slices_are_named_by_the_values_that_were_sent(api: httpx.Client, name: str) -> None:
    config = {"hashing": {"bits": 12}, "evaluation": {"slices": ["device", "hour"], "most": 3}}
    api.put(f"/models/{name}", json=config).raise_for_status()
    examples = clicks(3000)
    for start in range(0, 3000, 500):
        batch = {"examples": examples[start : start + 500]}
        api.post(f"/models/{name}/update", json=batch).raise_for_status()
    reply = told(api, name, 3000, slices_t=3000)
    EvaluationReply.model_validate(reply)
    assert set(reply["slices"]) == {"device", "hour"}
    devices = reply["slices"]["device"]
    assert set(devices) == {"phone", "tablet", 'TV "big"', "other"}
    for device, windows in devices.items():
        of_device = [e["label"] for e in examples if e["features"]["device"] == device]
        assert [windows["1h"]["examples"], windows["1h"]["clicks"]] == [len(of_device), sum(of_device)]
    hours = reply["slices"]["hour"]
    assert len(hours) == 4
    assert sum(windows["all"]["examples"] for windows in hours.values()) == 3000
    assert [windows["all"]["in_other"] for windows in devices.values()] == [0] * 4
    moved = [windows["all"]["in_other"] for value, windows in hours.items() if value != "other"]
    rest = hours["other"]["all"]
    assert rest["in_other"] == sum(moved)
    assert 0 < rest["largest_in_other"] <= rest["examples"]
    assert "largest_in_other" not in devices["phone"]["all"] | hours["other"]["1h"]


@pytest.mark.slow
def test_predictions_that_were_served_have_figures_of_their_own(api: httpx.Client, name: str) -> None:
    config = {
        "hashing": {"bits": 12},
        "evaluation": {"slices": ["device"]},
        "feedback": {"log": True, "exposure": "on_predict", "learn_at": "arrival"},
    }
    api.put(f"/models/{name}", json=config).raise_for_status()
    examples, losses = clicks(600), []
    for start in range(0, 600, 100):
        part = examples[start : start + 100]
        body = {"instances": [{"features": e["features"]} for e in part]}
        served = api.post(f"/models/{name}/predict", json=body).json()["predictions"]
        labels = [{"id": s["id"], "label": e["label"]} for s, e in zip(served, part, strict=True)]
        api.post(f"/models/{name}/update", json={"examples": labels}).raise_for_status()
        losses += [
            -np.log(s["probability"] if e["label"] else 1 - s["probability"])
            for s, e in zip(served, part, strict=True)
        ]
    reply = told(api, name, 600, slices_t=600)
    EvaluationReply.model_validate(reply)
    window = reply["sources"]["served"]["windows"]["1h"]
    assert (window["examples"], window["clicks"]) == (600, sum(e["label"] for e in examples))
    assert window["log_loss"] == pytest.approx(np.mean(losses))
    assert window["log_loss"] > reply["sources"]["progressive"]["windows"]["1h"]["log_loss"]
    phones = [e["label"] for e in examples if e["features"]["device"] == "phone"]
    assert reply["slices"]["device"]["phone"]["1h"]["clicks"] == sum(phones)

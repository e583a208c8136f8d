"""Forgetting over HTTP: the golden vectors, to 1e-9, and what is refused."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.support.golden import cases_of, hyper_of
from tests.support.problem_replies import invalid

HASHING = {"bits": 20, "numeric": "raw", "bias": False, "prior_probability": None}


def example_of(case: dict[str, Any]) -> dict[str, Any]:
    """An example of a golden case as in a request."""
    features = {f"f{i}": value for i, value in zip(case["indices"], case["values"], strict=True)}
    example = {"features": features, "label": case["label"], "weight": case["weight"]}
    return example | ({"event_time": case["time"]} if "time" in case else {})


@pytest.mark.parametrize("case", cases_of("golden_forgetting.json"))
def test_the_golden_case_is_reproduced_over_http(
    api: httpx.Client, request: pytest.FixtureRequest, case: dict[str, Any]
) -> None:
    path = f"/models/{abs(hash(request.node.nodeid)):x}"
    created = api.put(path, json={"hyper": hyper_of(case), "hashing": HASHING})
    assert created.json()["hyper"] == hyper_of(case)
    examples, want = [example_of(example) for example in case["examples"]], case["expect"]
    reply = api.post(f"{path}/update", json={"examples": examples[:5]}).json()
    results = [
        *reply["results"],
        *api.post(f"{path}/update", json={"examples": examples[5:]}).json()["results"],
    ]
    assert [one["probability"] for one in results] == pytest.approx(want["p"], rel=1e-9, abs=1e-9)

    final = want["final"]
    explained = api.post(
        f"{path}/explain", json={"features": {f"f{i}": 1.0 for i in final["indices"]}}
    ).json()
    of_name = {part["name"]: part for part in explained["features"]}
    for name, values in (("z", final["z"]), ("n", final["n"]), ("weight", final["w"])):
        found = [of_name[f"f{i}"][name] for i in final["indices"]]
        assert found == pytest.approx(values, rel=1e-9, abs=1e-9)
    described = api.get(path).json()
    assert described["nonzero"] == sum(w != 0 for w in final["w"])
    api.delete(path)


@pytest.mark.parametrize(
    "hyper",
    [
        {"family": "comid", "schedule": {"kind": "constant"}},
        {"schedule": {"kind": "constant"}},
        {"family": "rda", "rate": {"kind": "scalar", "G": 1, "D": 1}},
    ],
)
def test_forgetting_is_refused_where_it_is_not_defined(api: httpx.Client, hyper: dict[str, Any]) -> None:
    reply = api.put("/models/never", json={"hyper": hyper | {"forgetting": {"half_life_examples": 10}}})
    assert "is not defined for" in invalid(reply, "hyper.forgetting", "invalid_value")


def test_a_half_life_out_of_bounds_is_refused(api: httpx.Client) -> None:
    reply = api.put("/models/never", json={"hyper": {"forgetting": {"half_life_seconds": 0}}})
    assert "from 1 to 1e+12" in invalid(reply, "hyper.forgetting.half_life_seconds", "invalid_value")


def test_the_default_drops_features_where_it_is_asked_to(api: httpx.Client) -> None:
    created = api.put("/models/drops", json={"hyper": {"drop_below": 1e-6}})
    assert (created.status_code, created.json()["hyper"]["drop_below"]) == (201, 1e-6)
    assert len(created.json()["hyper"]["rate"]["experts"]) == 4
    assert api.put("/models/drops", json={"hyper": {"drop_below": 1e-6}}).status_code == 200
    assert "hyper.drop_below" in api.put("/models/drops", json={}).json()["detail"]
    api.delete("/models/drops")


def test_whatever_the_batches_the_same_features_are_dropped(api: httpx.Client) -> None:
    examples = [
        {
            "features": {"ad": f"a{i % 5}", "user": f"u{i}"},
            "label": i % 3 == 0,
            "event_time": 1_600_000_000 + 60 * i,
        }
        for i in range(600)
    ]
    body = {
        "hyper": {"l1": 0.1, "forgetting": {"half_life_seconds": 600}, "drop_below": 1e-3},
        "hashing": {"bits": 10},
    }
    found = []
    for name, size in (("by7", 7), ("at-once", 600)):
        assert api.put(f"/models/{name}", json=body).status_code == 201
        for start in range(0, 600, size):
            sent = {"examples": examples[start : start + size]}
            assert api.post(f"/models/{name}/update", json=sent).status_code == 200
        described = api.get(f"/models/{name}").json()
        explained = api.post(f"/models/{name}/explain", json={"features": {"ad": "a1", "user": "u9"}}).json()
        found.append(
            (
                described["features_seen"],
                described["features_dropped"],
                described["nonzero"],
                explained["features"],
            )
        )
        api.delete(f"/models/{name}")
    assert found[0] == found[1]
    seen, dropped, _, (_, _, user) = found[0]
    assert dropped > seen
    assert (user["name"], user["weight"], user["n"]) == ("user=u9", 0.0, 0.0)


@pytest.mark.parametrize(
    ("hyper", "words"),
    [
        ({"l1": 0.1}, "needs a half-life"),
        ({"rate": {"kind": "mixture", "experts": [{}, {}]}}, "needs a half-life"),
        ({"l1": 0, "forgetting": {"half_life_examples": 10}}, "needs an l1 above 0"),
        ({"drop_below": 0}, "must be a number from 1e-30 to 1e+06"),
    ],
)
def test_dropping_is_refused_where_nothing_fades(
    api: httpx.Client, hyper: dict[str, Any], words: str
) -> None:
    reply = api.put("/models/never", json={"hyper": {"drop_below": 1e-6} | hyper})
    assert words in invalid(reply, "hyper.drop_below", "invalid_value")

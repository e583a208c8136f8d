"""/explain and `ftrl explain` tell of the prediction that /predict gives."""

import itertools
import json
import math
from pathlib import Path

import httpx
import pytest
from mmh3 import mmh3_32_uintdigest as murmur

from tests.support.commands import run
from tests.support.problem_replies import invalid, problem
from tests.support.waiting import wait_until

HYPERS = [
    {},
    {"family": "rda", "rate": {"kind": "adaptive", "alpha": 0.5, "beta": 1.0}, "l1": 0.01},
    {"family": "comid", "schedule": {"kind": "constant"}, "l1": 0.001},
    {"family": "ftrl", "update": "implicit", "l1": 0.01, "psi_l2": 0.1, "schedule": {"kind": "constant"}},
]
HASHING = {
    "bits": 10,
    "crosses": [["ad", "site"]],
    "missing": "indicator",
    "prior_probability": 0.02,
    "types": {"hour": "category"},
    "transforms": {"price": "raw"},
}
EXAMPLE = {"ad": "a17", "site": "news", "hour": 14, "price": -0.35, "tags": ["x", "y"], "user": None}


@pytest.fixture(params=range(len(HYPERS)))
def explained(api: httpx.Client, request: pytest.FixtureRequest) -> str:
    name = f"explained-{request.param}"
    made = api.put(f"/models/{name}", json={"hyper": HYPERS[request.param], "hashing": HASHING})
    assert made.status_code in (200, 201), made.text
    examples = [
        {
            "features": EXAMPLE | {"ad": f"a{i % 19}", "price": i / 10},
            "label": int(i % 5 == 0),
            "weight": 1 + i % 3,
        }
        for i in range(60)
    ]
    assert api.post(f"/models/{name}/update", json={"examples": examples}).status_code == 200
    return name


def test_it_is_the_prediction_taken_apart(api: httpx.Client, explained: str) -> None:
    told = api.post(f"/models/{explained}/explain", json={"features": EXAMPLE}).json()
    predicted = api.post(f"/models/{explained}/predict", json={"features": EXAMPLE}).json()
    assert told["probability"] == predicted["probability"]
    assert told["revision"] == predicted["revision"]
    margin = told["offset"] + sum(part["contribution"] for part in told["features"]) + told.get("mixing", 0.0)
    assert told["margin"] == pytest.approx(margin, abs=1e-12)
    assert told["probability"] == pytest.approx(1 / (1 + math.exp(-told["margin"])))
    assert {part["name"] for part in told["features"]} == {
        *("bias", "ad=a17", "site=news", "hour=14", "price", "tags=x", "tags=y", "user="),
        "ad^site=a17\x1fnews",
    }
    assert any(part["contribution"] != 0 for part in told["features"])
    assert told["uncertainty"] > 0


def test_features_of_a_context_count_as_the_examples_own(api: httpx.Client, explained: str) -> None:
    context = {"ad": EXAMPLE["ad"], "site": EXAMPLE["site"]}
    rest = {name: value for name, value in EXAMPLE.items() if name not in context}
    together = api.post(f"/models/{explained}/explain", json={"features": EXAMPLE}).json()
    apart = api.post(f"/models/{explained}/explain", json={"context": context, "features": rest}).json()
    assert apart == together


def test_other_features_of_its_slot_are_named(api: httpx.Client) -> None:
    names = {f"ad=a{i}": murmur(f"ad=a{i}".encode(), 0) % 1024 for i in range(100)}
    one, other = next((a, b) for a, b in itertools.combinations(names, 2) if names[a] == names[b])
    api.put("/models/named", json={"hashing": {"bits": 10}})

    def others() -> list[str]:
        """A process samples the bodies of a model that was opened up to a second ago."""
        examples = [{"features": {"ad": name[3:]}, "label": 0} for name in (one, other)]
        api.post("/models/named/update", json={"examples": examples}).raise_for_status()
        reply = api.post("/models/named/explain", json={"features": {"ad": one[3:]}}).json()
        bias, feature = reply["features"]
        assert bias["also_in_slot"] == []
        return list(feature["also_in_slot"])

    wait_until(lambda: others() == [other], "the other name of the slot is known")
    listed = api.get("/models/named/features", params={"by": "weight", "most": 1}).json()
    (feature,) = listed["features"]
    explained = api.post("/models/named/explain", json={"features": {"ad": one[3:]}}).json()
    assert feature["weight"] == explained["features"][1]["weight"] < 0
    assert (set(feature["names"]), feature["slot"], listed["known"]) == ({one, other}, names[one], 1)
    assert api.get("/models/named/features", params={"most": 0}).status_code == 422


def test_features_that_meet_in_a_slot_are_named_together(api: httpx.Client) -> None:
    api.put("/models/crowded", json={"hashing": {"bits": 10}})
    features = {f"f{i}": "x" for i in range(300)}
    told = api.post("/models/crowded/explain", json={"features": features}).json()
    slots = [part["slot"] for part in told["features"]]
    assert told["shared_slots"]
    for shared in told["shared_slots"]:
        assert len(shared["names"]) == slots.count(shared["slot"]) > 1
        assert shared["value"] == len(shared["names"])


@pytest.mark.parametrize(
    ("body", "path", "code"),
    [
        ({}, "features", "required"),
        ({"features": {"a=b": 1}}, "features.a=b", "invalid_value"),
        ({"features": {"a": {"value": 1, "times": 1e9}}}, "features.a", "out_of_range"),
        ({"features": {}, "instances": []}, "instances", "unknown_field"),
        ({"context": {"a": 1}, "features": {"a": 1}}, "features.a", "duplicate_name"),
    ],
)
def test_a_bad_body_is_refused_with_its_path(api: httpx.Client, body: dict, path: str, code: str) -> None:
    invalid(api.post("/explain", json=body), path, code)


def test_an_unknown_model_is_not_found(api: httpx.Client) -> None:
    problem(api.post("/models/nobody/explain", json={"features": {}}), 404, "unknown_model")


@pytest.mark.slow
def test_the_command_prints_what_the_service_tells(api: httpx.Client, tmp_path: Path) -> None:
    file = tmp_path / "impression.json"
    file.write_text(json.dumps({"ad": "a17"}))
    told = api.post("/explain", json={"features": {"ad": "a17"}}).json()
    assert json.loads(run("explain", str(file), "--url", str(api.base_url), "--json").stdout) == told
    table = run("explain", str(file), "--url", str(api.base_url)).stdout
    assert "ad=a17" in table
    assert f"probability {told['probability']:.6f}" in table
    missing = run("explain", str(tmp_path / "nothing.json"), "--url", str(api.base_url))
    assert missing.returncode == 1
    assert "nothing.json: no JSON object" in missing.stderr


def test_declared_names_that_never_come_are_reported(api: httpx.Client) -> None:
    hashing = {"types": {"I1-I13": "number", "hour": "category"}, "crosses": [["hour", "site"]]}
    assert api.put("/models/unmet", json={"hashing": hashing}).status_code == 201
    few = [{"features": {"hour": 14, "I1": 2}, "label": 0}] * 999
    assert api.post("/models/unmet/update", json={"examples": few}).status_code == 200
    assert api.get("/models/unmet").json()["unmet_names"] == []
    assert api.post("/models/unmet/update", json=few[0]).status_code == 200
    assert api.get("/models/unmet").json()["unmet_names"] == ["I1-I13", "site"]
    assert 'ftrl_unmet_names{model="unmet"} 2.0' in api.get("/metrics").text
    assert api.post("/models/unmet/predict", json={"features": {"site": "a"}}).status_code == 200
    assert api.get("/models/unmet").json()["unmet_names"] == ["I1-I13"]


def test_names_that_come_as_text_and_as_number_are_reported(api: httpx.Client) -> None:
    assert api.put("/models/mixing", json={}).status_code == 201
    for value in ("14", 14, "15"):
        reply = api.post("/models/mixing/predict", json={"features": {"hour": value, "ad": "a"}})
        assert reply.status_code == 200
    assert api.get("/models/mixing").json()["mixed_names"] == ["hour"]
    assert 'ftrl_mixed_names{model="mixing"} 1.0' in api.get("/metrics").text

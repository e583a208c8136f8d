"""A mixture over HTTP: the golden vectors, to 1e-9, its weights, and what is refused."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.api.test_forgetting import HASHING, example_of
from tests.support.commands import run
from tests.support.golden import cases_of, hyper_of
from tests.support.problem_replies import invalid

EXPERTS = [
    {"alpha": 1.0, "beta": 0.1, "l1": 0.0, "half_life_examples": 1000.0},
    {"alpha": 0.1, "beta": 1.0, "l1": 0.5},
]
HYPER = {"rate": {"kind": "mixture", "experts": EXPERTS, "share": 1e-4}}


@pytest.mark.parametrize("case", cases_of("golden_mixture.json"))
def test_the_golden_case_is_reproduced_over_http(
    api: httpx.Client, request: pytest.FixtureRequest, case: dict[str, Any]
) -> None:
    path = f"/models/{abs(hash(request.node.nodeid)):x}"
    created = api.put(path, json={"hyper": hyper_of(case), "hashing": HASHING}).json()
    assert created["hyper"] == hyper_of(case)
    count = len(case["experts"])
    assert created["expert_weights"] == pytest.approx([1 / count] * count)
    examples, want = [example_of(example) for example in case["examples"]], case["expect"]
    for start, stop in pairwise([0, 1, 5, 6, len(examples)]):
        results = api.post(f"{path}/update", json={"examples": examples[start:stop]}).json()["results"]
        found = [one["probability"] for one in results]
        assert found == pytest.approx(want["p"][start:stop], rel=1e-9, abs=1e-9)
        weights = api.get(path).json()["expert_weights"]
        assert weights == pytest.approx(want["weights"][stop - 1], rel=1e-9, abs=1e-9)
    api.delete(path)


def test_an_explanation_has_the_experts_and_what_mixing_adds(api: httpx.Client, tmp_path: Path) -> None:
    api.put("/models/mixed", json={"hyper": HYPER})
    examples = [{"features": {"ad": f"a{i % 3}", "site": "s"}, "label": int(i % 3 == 0)} for i in range(200)]
    assert api.post("/models/mixed/update", json={"examples": examples}).status_code == 200
    explained = api.post("/models/mixed/explain", json={"features": {"ad": "a0", "site": "s"}}).json()
    total = explained["offset"] + sum(part["contribution"] for part in explained["features"])
    assert total + explained["mixing"] == pytest.approx(explained["margin"])
    described = api.get("/models/mixed").json()
    assert [one["weight"] for one in explained["experts"]] == described["expert_weights"]
    assert sum(described["expert_weights"]) == pytest.approx(1.0)
    mean = sum(one["weight"] * one["probability"] for one in explained["experts"])
    assert explained["probability"] == pytest.approx(mean)
    predicted = api.post("/models/mixed/predict", json={"features": {"ad": "a0", "site": "s"}}).json()
    assert predicted["probability"] == explained["probability"]
    assert described["nonzero"] == 4
    (tmp_path / "one.json").write_text('{"ad": "a0", "site": "s"}')
    printed = run(
        "explain", str(tmp_path / "one.json"), "--url", str(api.base_url), "--model", "mixed"
    ).stdout
    for number, expert in enumerate(explained["experts"]):
        assert f"expert {number}: weight {expert['weight']:.4f}, log-odds {expert['margin']:+.6f}" in printed
    assert f"mixing {explained['mixing']:+.6f}): probability" in printed.replace(
        f", uncertainty {explained['uncertainty']:.6f}", ""
    )
    api.delete("/models/mixed")


def test_other_models_have_no_experts(api: httpx.Client) -> None:
    created = api.put(
        "/models/alone", json={"hyper": {"rate": {"kind": "adaptive"}}, "hashing": {"bits": 10}}
    )
    assert created.json()["expert_weights"] is None
    explained = api.post("/models/alone/explain", json={"features": {"ad": "a"}}).json()
    assert not {"experts", "mixing"} & explained.keys()
    api.delete("/models/alone")


def test_the_default_is_a_mixture(api: httpx.Client) -> None:
    assert len(api.get("/models/default").json()["expert_weights"]) == 4


def test_one_expert_is_the_model_that_it_describes(api: httpx.Client) -> None:
    rate = {"kind": "mixture", "experts": EXPERTS[:1]}
    created = api.put("/models/single", json={"hyper": {"rate": rate}}).json()
    assert created["hyper"]["rate"] == {"kind": "adaptive", "alpha": 1.0, "beta": 0.1}
    assert created["hyper"]["forgetting"] == {"half_life_examples": 1000.0}
    again = api.put("/models/single", json={"hyper": {"rate": rate}})
    assert again.status_code == 200
    api.delete("/models/single")


@pytest.mark.parametrize(
    ("hyper", "field", "words"),
    [
        (HYPER | {"family": "rda"}, "hyper.family", "must be ftrl"),
        (HYPER | {"l1": 0.1}, "hyper.l1", "each expert of a mixture has its own"),
        (HYPER | {"schedule": {"kind": "constant"}}, "hyper.schedule", "must be once"),
    ],
)
def test_a_mixture_is_refused_where_it_is_not_defined(
    api: httpx.Client, hyper: dict[str, Any], field: str, words: str
) -> None:
    assert words in invalid(api.put("/models/never", json={"hyper": hyper}), field, "invalid_value")


def test_another_number_of_experts_cannot_go_on(api: httpx.Client) -> None:
    api.put("/models/two", json={"hyper": HYPER})
    three = {"rate": HYPER["rate"] | {"experts": [*EXPERTS, EXPERTS[1]]}}
    refused = api.post("/models/two/clone", json={"name": "three", "hyper": three})
    assert refused.status_code == 409
    assert refused.json()["code"] == "snapshot_mismatch"
    assert (
        "a mixture of 2 experts in hyper.rate, and a mixture of 3 experts cannot" in refused.json()["detail"]
    )
    single = {"rate": {"kind": "adaptive", "alpha": 0.1, "beta": 1.0}}
    refused = api.post("/models/two/clone", json={"name": "one", "hyper": single})
    assert "and a single model cannot go on from it" in refused.json()["detail"]
    api.delete("/models/two")

"""Every family with every learning rate and every schedule: learned over HTTP to the last bit, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import product
from operator import add
from typing import Any

import httpx
import numpy as np
import pytest

from model_core.examples.batch import ExampleBatch
from model_core.hashing.encoder import FeatureEncoder
from model_core.learning.hyperparameters import Hyperparameters, refusal
from model_core.learning.state import ModelState
from service.models.config.model import ModelConfig
from service.storage.topology import connect
from tests.service.api.conftest import LiveApi
from tests.support.problem_replies import invalid, problem
from tests.support.system import stored
from tests.support.waiting import wait_until

RATES: list[dict[str, Any]] = [
    {"kind": "adaptive", "alpha": 0.5, "beta": 1.0},
    {"kind": "gamma", "gamma": 0.9, "floor": 1.5},
    {"kind": "scalar", "G": 2.0, "D": 4.0},
]
SCHEDULES: list[dict[str, Any]] = [
    {"kind": "once"},
    {"kind": "constant"},
    {"kind": "over_T", "T": 50},
    {"kind": "inv_sqrt"},
    {"kind": "xiao", "rho": 2.0},
    {"kind": "custom", "values": [1.0, 0.5, 0.5]},
]
GROWS = {"constant", "over_T", "inv_sqrt", "xiao"}
HASHING = {"bits": 10, "numeric": "raw", "prior_probability": 0.2}
RARE, FIRST, ROUNDS = {"rare": "x"}, 20, 80


def hypers() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and hyperparameters of every combination; updates and psi_l2 take turns."""
    combinations = product(("ftrl", "rda", "comid", "aogd"), RATES, SCHEDULES)
    for i, (family, rate, schedule) in enumerate(combinations):
        hyper = {
            "family": family,
            "update": ("first_order", "implicit")[i % 2],
            "rate": rate,
            "schedule": schedule,
            "l1": 0.002,
            "psi_l2": 0.003 if family in ("ftrl", "rda") and i % 3 == 0 else 0.0,
        }
        yield f"{family}-{rate['kind']}-{schedule['kind']}", hyper


def is_served(hyper: dict[str, Any]) -> bool:
    return refusal(Hyperparameters.from_json(hyper)) is None


SERVED = {name: hyper for name, hyper in hypers() if is_served(hyper)}
REFUSED = {name: hyper for name, hyper in hypers() if not is_served(hyper)}
EXAMPLES: list[dict[str, Any]] = [
    {
        "features": {"ad": f"a{i % 7}", "price": i % 5 - 2.5, "once": f"n{i}"} | (RARE if i < FIRST else {}),
        "label": int(i % 3 == 0 or i < FIRST),
        "weight": 1.0 if i % 2 else 0.05,
    }
    for i in range(ROUNDS)
]
ASKED: list[dict[str, Any]] = [RARE, EXAMPLES[0]["features"], EXAMPLES[-1]["features"], {"new": "x"}, {}]


def config_of(hyper: dict[str, Any]) -> ModelConfig:
    return ModelConfig.from_json({"hyper": hyper, "hashing": HASHING})


def offline(config: ModelConfig, rounds: int = ROUNDS) -> ModelState:
    """One pass of the numeric core, in this process."""
    encoder, state = FeatureEncoder(config.hashing), config.empty_state()
    examples = EXAMPLES[:rounds]
    encoded = [encoder.encode(example["features"]) for example in examples]
    labels, weights = [e["label"] for e in examples], [e["weight"] for e in examples]
    config.learn(state, ExampleBatch.from_encoded(encoded, labels, weights))
    return state


@pytest.fixture(scope="module")
def learned(live_api: LiveApi) -> Iterator[httpx.Client]:
    """All models that are served, made at once; each has learned all examples, in two requests."""
    client = live_api.client
    for name, hyper in SERVED.items():
        client.put(f"/models/{name}", json={"hyper": hyper, "hashing": HASHING}).raise_for_status()
    for name in SERVED:
        for part in (EXAMPLES[:FIRST], EXAMPLES[FIRST:]):
            client.post(f"/models/{name}/update?wait=false", json={"examples": part}).raise_for_status()
    for name in SERVED:
        wait_until(lambda: client.get(f"/models/{name}").json()["t"] >= ROUNDS)  # noqa: B023
    yield client
    for name in SERVED:
        client.delete(f"/models/{name}")


def test_what_is_served_is_all_whose_state_is_local_to_a_key() -> None:
    assert (len(SERVED), len(REFUSED)) == (12 + 18 + 10 + 10, 22)


@pytest.mark.parametrize("name", SERVED)
async def test_it_learns_over_http_what_an_offline_pass_learns(
    learned: httpx.Client, live_api: LiveApi, name: str
) -> None:
    assert live_api.settings.redis_url is not None
    topology = connect(live_api.settings, live_api.settings.redis_url)
    replica = await stored(topology, name)
    await topology.close()
    assert replica.state.digest() == offline(config_of(SERVED[name])).digest()


@pytest.mark.parametrize("name", SERVED)
def test_predictions_and_density_are_those_of_the_offline_pass(learned: httpx.Client, name: str) -> None:
    config = config_of(SERVED[name])
    state, encoder = offline(config), FeatureEncoder(config.hashing)
    wanted = config.predict(state, ExampleBatch.from_encoded([encoder.encode(f) for f in ASKED])).tolist()
    body = {"instances": [{"features": features} for features in ASKED]}
    reply = learned.post(f"/models/{name}/predict", json=body).json()
    assert [prediction["probability"] for prediction in reply["predictions"]] == wanted
    described = learned.get(f"/models/{name}").json()
    assert (described["features_seen"], described["nonzero"]) == (
        state.features_seen,
        state.nonzero(config.hyper),
    )
    assert described["density"] == state.density(config.hyper) > 0.0


@pytest.mark.parametrize("name", SERVED)
def test_an_explanation_reads_weights_that_shrank_untouched(learned: httpx.Client, name: str) -> None:
    config = config_of(SERVED[name])
    (feature_hash,) = FeatureEncoder(config.hashing).encode(RARE).hashes
    slot = np.array([feature_hash % 1024], np.uint32)
    before, after = (float(offline(config, t).weights(slot, config.hyper)[0]) for t in (FIRST, ROUNDS))
    explained = learned.post(f"/models/{name}/explain", json={"features": RARE}).json()
    (rare,) = (part for part in explained["features"] if part["name"] == "rare=x")
    assert (rare["weight"], rare["contribution"], rare["slot"]) == (after, after, slot[0])
    contributions = [part["contribution"] for part in explained["features"]]
    assert explained["margin"] == reduce(add, contributions, explained["offset"])  # `sum` may compensate
    predicted = learned.post(f"/models/{name}/predict", json={"features": RARE}).json()
    assert explained["probability"] == predicted["probability"]
    assert before > 0.0
    grows = SERVED[name]["schedule"]["kind"] in GROWS or SERVED[name]["rate"]["kind"] == "scalar"
    assert after < before if grows else after == before


@pytest.mark.parametrize("name", REFUSED)
def test_the_rest_is_refused_with_the_reason(api: httpx.Client, name: str) -> None:
    reply = api.put(f"/models/{name}", json={"hyper": REFUSED[name], "hashing": HASHING})
    document = problem(reply, 422, "unprocessable")
    assert document["errors"][0]["detail"] == refusal(Hyperparameters.from_json(REFUSED[name]))
    assert REFUSED[name]["family"] in document["detail"]
    problem(api.get(f"/models/{name}"), 404, "unknown_model")


@pytest.mark.parametrize("family", ["comid", "aogd"])
def test_psi_l2_is_refused_without_a_closed_form_of_shrinkage(api: httpx.Client, family: str) -> None:
    hyper = {"family": family, "schedule": {"kind": "constant"}, "psi_l2": 0.1}
    reply = api.put("/models/never", json={"hyper": hyper})
    assert "psi_l2" in invalid(reply, "hyper", "invalid_value")

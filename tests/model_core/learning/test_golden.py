"""The golden vectors of the mathematics: every served combination must reproduce them."""

import numpy as np
import pytest

from model_core.evaluation.measures import summarize
from model_core.examples.batch import ExampleBatch
from model_core.kernels.numerics import residual, sigmoid
from model_core.learning.hyperparameters import Hyperparameters
from model_core.learning.rounds import learn_batch
from model_core.learning.state import ModelState
from tests.support.golden import cases_of, hyper_of
from tests.support.rounds import discount_of

BITS = 6


def golden_cases() -> list:
    return [*cases_of("golden_shared.json"), *cases_of("golden_forgetting.json")]


def unit(values) -> float:
    return min(1.0, max((abs(v) for v in values), default=0.0))


def assert_close(got, want, tol, scale, slack=0.0) -> None:
    """|got - want| <= tol max(|want|, scale), where scale is min(1, the largest |want|)."""
    want = np.array(want)
    assert np.all(np.abs(np.array(got) - want) <= tol * np.maximum(scale, np.abs(want)) + slack)


@pytest.mark.parametrize("case", golden_cases())
def test_the_golden_case_is_reproduced(case):
    hyper = Hyperparameters.from_json(hyper_of(case))
    assert hyper.to_json() == hyper_of(case)
    examples, want, tol = case["examples"], case["expect"], case["tol"]
    labels = np.array([e["label"] for e in examples])
    weights = np.array([e["weight"] for e in examples])
    slot_of = {index: slot for slot, index in enumerate(case["expect"]["final"]["indices"])}
    encoded = [([slot_of[i] for i in e["indices"]], e["values"]) for e in examples]
    times = [None if "time" not in e else round(1000 * e["time"]) for e in examples]
    batch = ExampleBatch.from_encoded(encoded, labels.tolist(), weights.tolist(), times)

    state = ModelState.empty(BITS)
    learned = learn_batch(state, hyper, False, 0.0, batch)

    assert not learned.skipped.any()
    assert_close(learned.margins, want["margin"], tol, unit(want["margin"]))
    p = [sigmoid(m) for m in learned.margins]
    assert np.all(np.abs(np.array(p) - want["p"]) <= tol * unit([2 * (v - 0.5) for v in want["p"]]) + 1e-14)
    r0 = [c * residual(m, y) for m, y, c in zip(learned.margins, labels, weights, strict=True)]
    assert_close(r0, want["r0"], tol, unit(want["r0"]))

    final = want["final"]
    slots = np.arange(len(slot_of), dtype=np.uint32)
    w = state.weights(slots, hyper)
    assert_close(w, final["w"], tol, unit(final["w"]))
    assert ((w == 0) == (np.array(final["w"]) == 0)).all()
    scale = discount_of(state).scale
    assert_close(state.rows[slots, 1] * scale**2, final["n"], tol, unit(final["n"]))
    if hyper.family in ("ftrl", "rda"):
        assert_close(state.rows[slots, 0] * scale, final["z"], tol, unit(final["z"]))

    assert state.t == want.get("t", len(examples))
    if not want["metrics"]:
        return
    assert state.features_seen == want["metrics"]["features_present"]
    assert state.nonzero(hyper) == want["metrics"]["nnz"]
    assert_close(state.density(hyper), want["metrics"]["density"], tol, 1.0)

    summary = summarize(learned.margins, batch.labels, batch.weights)
    for got, name in [
        (summary.plain.log_loss, "logloss"),
        (summary.weighted.log_loss, "logloss_weighted"),
        (summary.plain.auc, "auc"),
        (summary.weighted.auc, "auc_weighted"),
    ]:
        slack = max(tol, case["auc_tol"]) if name.startswith("auc") else tol
        assert_close(got, want["metrics"][name], slack, 1.0)

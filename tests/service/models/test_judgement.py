"""What the learner judges right or wrong, on predictions whose truth is known."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model_core.examples.batch import ExampleBatch
from model_core.hashing.contract import HashContract, Limits
from model_core.hashing.encoder import FeatureEncoder
from model_core.learning.rounds import learn_batch
from model_core.learning.state import ModelState
from service.models.config.model import ModelConfig
from service.models.config.sections import EvaluationConfig
from service.models.evaluation.judgement import Finding, Judgement
from service.models.evaluation.report import report_of
from service.models.evaluation.slice_report import slices_in_pieces
from service.models.evaluation.slices import SliceName
from service.models.evaluation.state import Evaluations
from service.telemetry.metrics import Metrics

LOGGED_MS = 1_700_000_000_000
BITS = 18
PHONE, DESKTOP = 1, 2


def judgement(evaluations: Evaluations) -> Judgement | None:
    *_, slices = slices_in_pieces(evaluations, 0, lambda *_: None)
    return report_of(evaluations, "revision", 0, slices.parts if slices else {}).judgement


def findings(evaluations: Evaluations) -> dict[str, Finding]:
    found = judgement(evaluations)
    assert found is not None
    return {finding.check: finding for finding in found.findings}


def served(
    margins: NDArray[np.float64],
    clicks: NDArray[np.bool_],
    weights: NDArray[np.float64] | None = None,
    devices: NDArray[np.uint32] | None = None,
) -> Evaluations:
    """The evaluation of these predictions, sliced by device if there are some."""
    evaluations = Evaluations(EvaluationConfig(("device",)))
    evaluations.know({PHONE: SliceName(0, "phone"), DESKTOP: SliceName(0, "desktop")})
    rows = len(margins)
    hashes = np.zeros(rows, np.uint32) if devices is None else devices
    weights = np.empty(0) if weights is None else weights
    batch = ExampleBatch(np.arange(rows + 1), hashes, np.empty(0), clicks.astype(np.uint8), weights)
    evaluations.add(margins, batch, LOGGED_MS)
    return evaluations


def learned(
    hyper: dict[str, Any], examples: list[dict[str, str]], clicks: NDArray[np.bool_], *slices: str
) -> Evaluations:
    """The progressive evaluation of a model that learns these."""
    encoder = FeatureEncoder(HashContract(bits=BITS), Limits())
    evaluations = Evaluations(EvaluationConfig(slices))
    for feature, name in enumerate(slices):
        for value in sorted({example[name] for example in examples}):
            (category,) = encoder.encode({name: value}).hashes
            evaluations.know({**evaluations.names, int(category): SliceName(feature, value)})
    batch = ExampleBatch.from_encoded(
        [encoder.encode(example) for example in examples], clicks.astype(int).tolist()
    )
    config = ModelConfig.from_json({"hyper": hyper})
    margins = learn_batch(ModelState.empty(BITS), config.hyper, True, 0.0, batch).margins
    evaluations.add(margins, batch, LOGGED_MS)
    return evaluations


def sigmoid(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 / (1.0 + np.exp(-margins))


def test_a_model_that_follows_noise_is_worse_than_the_click_rate() -> None:
    random = np.random.default_rng(1)
    values = random.integers(0, 12_000, (36_000, 3))
    examples = [{f"f{number}": f"v{value}" for number, value in enumerate(row)} for row in values]
    hyper = {"rate": {"kind": "adaptive", "alpha": 0.5, "beta": 1.0}, "l1": 0}
    found = findings(learned(hyper, examples, random.random(36_000) < 0.5))
    assert found["total"].wrong is False
    constant = found["constant"]
    assert constant.wrong is True
    assert constant.ratio is not None
    assert constant.ratio > 1.01


def test_a_model_that_is_right_only_in_total_is_wrong_in_its_slices() -> None:
    random = np.random.default_rng(1)
    phone = random.random(4_000) < 0.5
    examples = [{"device": "phone" if one else "desktop"} for one in phone]
    clicks = random.random(4_000) < np.where(phone, 0.8, 0.2)
    hyper = {"rate": {"kind": "adaptive", "alpha": 0.001, "beta": 1.0}}
    found = findings(learned(hyper, examples, clicks, "device"))
    assert (found["total"].wrong, found["constant"].wrong) == (False, False)
    assert (found["slice"].wrong, found["slice"].where) == (True, "device = desktop")
    assert found["slice"].ratio == pytest.approx(2.5, abs=0.2)
    assert (found["bucket"].wrong, found["bucket"].where) == (True, "0.4 to 0.5")


def test_the_worst_bucket_is_named() -> None:
    random = np.random.default_rng(2)
    margins = random.normal(-2.0, 1.0, 20_000)
    p = sigmoid(margins)
    high = (p > 0.3) & (p < 0.4)
    found = findings(served(margins, random.random(20_000) < np.where(high, p / 2, p)))
    assert (found["bucket"].wrong, found["bucket"].where) == (True, "0.3 to 0.4")
    assert found["bucket"].ratio == pytest.approx(2.0, abs=0.3)


def test_a_part_without_a_click_is_wrong_if_it_should_have_had_some() -> None:
    random = np.random.default_rng(3)
    margins = np.concatenate([np.full(4_000, -1.0), np.full(400, -2.2)])
    clicks = np.concatenate([random.random(4_000) < sigmoid(np.array(-1.0)), np.zeros(400, bool)])
    bucket = findings(served(margins, clicks))["bucket"]
    assert (bucket.wrong, bucket.ratio, bucket.where) == (True, None, "0.07 to 0.1")


def test_predictions_of_the_click_rate_alone_are_neither_better_nor_worse() -> None:
    clicks = np.random.default_rng(4).random(5_000) < 0.1
    rate = clicks.mean()
    constant = findings(served(np.full(5_000, np.log(rate / (1 - rate))), clicks))["constant"]
    assert constant.wrong is None


def test_too_few_clicks_are_not_judged() -> None:
    margins = np.full(1_000, -3.0)
    assert judgement(served(margins, np.arange(1_000) < 49)) is None
    assert judgement(served(margins, np.arange(1_000) < 50)) is not None


@pytest.mark.slow
@pytest.mark.parametrize("sampled", [1.0, 0.1], ids=["all", "sampled"])
@pytest.mark.parametrize(("center", "examples"), [(-2.5, 2_000), (-4.5, 30_000), (0.0, 3_000)])
def test_predictions_that_are_right_are_rarely_called_wrong(
    center: float, examples: int, sampled: float
) -> None:
    random = np.random.default_rng(5)
    worlds, wrong = 200, Counter[str]()
    for _ in range(worlds):
        margins = random.normal(center, 1.0, examples)
        clicks = random.random(examples) < sigmoid(margins)
        sent = clicks | (random.random(examples) < sampled)
        weights = np.where(clicks, 1.0, 1.0 / sampled)[sent]
        devices = random.integers(PHONE, DESKTOP + 1, examples).astype(np.uint32)[sent]
        found = findings(served(margins[sent], clicks[sent], weights, devices))
        wrong.update(check for check, finding in found.items() if finding.wrong)
    assert max(wrong.values(), default=0) <= 0.02 * worlds, wrong


def test_metrics_have_the_checks_that_could_be_made() -> None:
    metrics = Metrics()
    metrics.judged("ads", {"total": False, "slice": True})
    text = metrics.render().decode()
    assert 'ftrl_online_wrong{check="total",model="ads"} 0.0' in text
    assert 'ftrl_online_wrong{check="slice",model="ads"} 1.0' in text
    metrics.judged("ads", {"total": True})
    text = metrics.render().decode()
    assert 'ftrl_online_wrong{check="total",model="ads"} 1.0' in text
    assert 'check="slice"' not in text

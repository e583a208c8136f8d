"""`ftrl reproduce untuned`, `experts`, `drift` and `churn`: defaults against what was tuned; dropping."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from lab.experiments import calibration, experts, logs, untuned, vowpal_wabbit
from lab.experiments.data_files import load
from lab.experiments.datasets import Dataset
from lab.experiments.reproduction import (
    ReproductionPlan,
    reproduce_experts,
    reproduce_untuned,
)
from model_core.examples.batch import ExampleBatch
from model_core.kernels.numerics import log_losses, sigmoids
from model_core.learning.hyperparameters import AdaptiveRate, Expert, HalfLife, Hyperparameters, MixtureRate
from service.errors import CommandFailure
from service.models.config.model import ModelConfig
from tests.support.commands import run
from tests.support.small_data import dataset, write_all


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(tmp_path_factory.mktemp("data"))


MEASURED = untuned.Losses(0.5, 1.0)
HALF = untuned.Outcome("", "choosing", 400, 0.5, MEASURED, MEASURED, {"": 0.5}, {}, {})
"""The outcome of a log whose best single configuration has a log loss of 0.5."""


def plan_of(data: Path, out: Path, *only: str) -> ReproductionPlan:
    return ReproductionPlan(data, out, only, jobs=1, progress=False, quick=True)


def test_the_table_has_both_defaults_the_best_of_the_grid_and_vowpal_wabbit(
    data: Path, tmp_path: Path
) -> None:
    pytest.importorskip("vowpalwabbit")
    report = reproduce_untuned(plan_of(data, tmp_path, "avazu", "rcv1"))
    assert (tmp_path / "untuned-avazu-rcv1-quick.md").read_text() == report.markdown
    avazu, words, unit = report.figures["logs"]
    assert [one["log"] for one in (words, unit)] == ["rcv1, words", "rcv1, unit length"]
    assert avazu["half"] == "held out"
    assert words["new"] != unit["new"], "one has the values of the file, the other has not"
    batch = load("avazu", data).batch
    old = ModelConfig.from_json(
        {"hyper": untuned.OLD_HYPER, "hashing": {"bits": 10, "prior_probability": None}}
    )
    margins = old.learn(old.empty_state(), batch).margins
    assert avazu["old"]["log_loss"] == pytest.approx(log_losses(margins, batch.labels).mean())
    ratio = sigmoids(margins).sum() / batch.labels.sum()
    assert avazu["old"]["first_rows"] == pytest.approx(ratio)
    assert avazu["best"][0] == min(avazu["tuned"].values())
    assert len(avazu["tuned"]) == 3 * 2, "rates and l1 of a quick run"
    assert set(avazu["vowpal_wabbit"]) >= {""}
    assert all(0.3 < loss < 1.0 for loss in avazu["vowpal_wabbit"].values())
    assert f"{avazu['best'][0]:.5f}" in report.markdown


def test_a_log_is_measured_once(data: Path, tmp_path: Path) -> None:
    one = reproduce_untuned(plan_of(data, tmp_path, "avazu"))
    (cell,) = (tmp_path / "cells").iterdir()
    written = cell.stat().st_mtime_ns
    again = reproduce_untuned(plan_of(data, tmp_path, "avazu"))
    assert again.markdown == one.markdown
    assert cell.stat().st_mtime_ns == written


def test_absent_data_is_reported_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        CommandFailure, match=r"has no criteo_kaggle.*give --data, or set FTRL_DATA, to the dir"
    ):
        reproduce_untuned(plan_of(tmp_path, tmp_path / "out"))


def test_without_vowpal_wabbit_its_columns_are_empty(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vowpal_wabbit, "installed_version", lambda: None)
    report = reproduce_untuned(plan_of(data, tmp_path, "avazu"))
    assert report.figures["logs"][0]["vowpal_wabbit"] == {}
    assert "pip install 'ftrl-service[bench]'" in report.markdown


def test_the_orders_and_forms_of_a_log_have_the_same_rows() -> None:
    whole = dataset(300)
    times = tuple(f"{(7 * i) % 300:03}" for i in range(300))
    by_time = logs.arranged(logs.Log("t", "books", "choosing", "time"), replace(whole, times=times))
    assert by_time.batch.labels.tolist() == [
        label for _, label in sorted(zip(times, whole.batch.labels.tolist(), strict=True))
    ]
    shuffled = logs.arranged(logs.Log("s", "books", "choosing", "shuffled", without_values=True), whole)
    assert shuffled.batch.labels.sum() == whole.batch.labels.sum()
    assert not shuffled.batch.values.size
    rare = logs.arranged(logs.Log("r", "books", "choosing", rare_clicks=True), whole)
    assert rare.batch.labels.sum() == whole.batch.labels.sum() // 10
    assert (rare.batch.labels == 0).sum() == (whole.batch.labels == 0).sum()


def test_the_mixture_of_an_expert_set_is_that_of_the_model() -> None:
    data = dataset(400)
    pool = [
        Expert(AdaptiveRate(0.1), 0.05),
        Expert(AdaptiveRate(1.0, 0.1), 0.0, HalfLife("examples", 100.0)),
        Expert(AdaptiveRate(0.02), 0.0),
    ]
    trial = experts.trial_of(data, None, HALF, pool, 1)
    rate = MixtureRate((pool[0], pool[1]), experts.SHARE)
    config = ModelConfig.from_json(
        {"hyper": Hyperparameters(rate=rate).to_json(), "hashing": {"bits": data.bits}}
    )
    mean = log_losses(untuned.margins_of(data, config), data.batch.labels).mean()
    excess = trial.excess([(0, 1), (0, 2), (1, 2)])
    assert excess[0] == pytest.approx(100 * (mean / 0.5 - 1), abs=1e-6)


def test_no_exchange_of_an_expert_improves_a_choice() -> None:
    random = np.random.default_rng(2)
    pool = [Expert(AdaptiveRate(0.1), 0.0, HalfLife("examples", 9.0) if k % 2 else None) for k in range(8)]
    trials = [experts.Trial(random.uniform(0.1, 0.9, (400, 8)), HALF, 0.0, target) for target in (1.0, 5.0)]

    def score(places: tuple[int, ...]) -> float:
        shares = [one.excess([places])[0] / one.target for one in trials]
        return max(shares) + sum(shares) / len(shares)

    pool = [replace(one, l1=float(k)) for k, one in enumerate(pool)]
    choice = experts.choose(trials, pool)
    chosen = [pool.index(one) for one in choice.experts]
    assert sum(one.forgetting is None for one in choice.experts) == 2
    assert choice.excess == pytest.approx([one.excess([tuple(chosen)])[0] for one in trials])
    for gone in chosen:
        for new in set(range(8)) - set(chosen):
            if new % 2 == gone % 2:
                other = tuple(sorted({*chosen} - {gone} | {new}))
                assert score(other) >= score(tuple(chosen)) - 1e-12


@pytest.mark.slow
def test_the_choice_of_experts_is_reported_beside_the_default(data: Path, tmp_path: Path) -> None:
    report = reproduce_experts(plan_of(data, tmp_path, "books"))
    assert len(report.figures["rate"]["experts"]) == experts.SIZE
    assert [one["log"] for one in report.figures["logs"]] == [
        *("books, words", "books, unit length"),
        *("simulated, 0.2 % clicks", "simulated, drift"),
    ]
    assert "half-life" in report.markdown


def test_dropping_bounds_the_slots_in_use_at_an_equal_log_loss(tmp_path: Path) -> None:
    found = run("reproduce", "churn", "--out", str(tmp_path / "new"), "--quick", "--json")
    report = json.loads(found.stdout)
    never, *others = report["traces"]
    assert [one["drop_below"] for one in report["traces"]] == [None, 1e-6, 1e-4, 1e-2]
    for one in others:
        assert max(one["in_use"]) < 1.2 * one["in_use"][14] < never["in_use"][-1] / 1.5
        assert one["dropped"][-1] > never["in_use"][-1] / 2
        assert np.mean(one["log_loss"]) == pytest.approx(np.mean(never["log_loss"]), rel=1e-3)
    assert never["dropped"][-1] == 0
    written = (tmp_path / "new" / "churn-quick.md").read_text()
    assert f"{never['in_use'][-1]:,}" in written


@pytest.mark.slow
def test_drift_curves_are_drawn_for_each_world(tmp_path: Path) -> None:
    found = run("reproduce", "drift", "--out", str(tmp_path), "--quick", "--jobs", "1", "--json")
    assert found.returncode == 0, found.stderr
    worlds = json.loads(found.stdout)["worlds"]
    assert [one["world"] for one in worlds] == ["shock", "drift", "seasons"]
    shock = np.array(worlds[0]["excess"]["old default"])
    half = shock.size // 2
    assert shock[half : half + 3].mean() > shock[half - 3 : half].mean()
    picture = ET.parse(tmp_path / "drift-quick.svg")
    shown = "".join(picture.getroot().itertext())
    assert all(word in shown for word in ("shock", "drift", "seasons", "old default", "best single"))


def calibrated(rows: int, scale: float) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], Dataset]:
    """Margins that are `scale` times the truth's, and clicks; one feature is in all rows, one in half."""
    random = np.random.default_rng(4)
    truth = random.normal(-1.0, 1.5, rows)
    labels = (random.uniform(size=rows) < sigmoids(truth)).astype(np.float64)
    row_ptr = np.cumsum([0, *(1 + np.arange(rows) % 2)])
    hashes = np.concatenate([np.arange(1 + i % 2) for i in range(rows)]).astype(np.uint32)
    return scale * truth, Dataset("", ExampleBatch(row_ptr, hashes, np.empty(0), labels), 2)


def test_right_predictions_are_found_right_and_wrong_ones_wrong() -> None:
    right = calibration.calibration_of(*calibrated(40_000, 1.0))
    assert right is not None
    assert abs(right.total - 1) < right.reach
    assert right.slices == (2, 2)
    assert right.tenths.right >= 8
    wrong = calibration.calibration_of(*calibrated(40_000, 2.0))
    assert wrong is not None
    assert wrong.tenths.right <= 3
    assert calibration.calibration_of(*calibrated(10_000, 1.0)) is None


@pytest.mark.parametrize("fit", [calibration.platt, calibration.isotonic])
def test_a_learned_map_mends_predictions_that_are_too_sure(
    fit: Callable[[calibration.Floats], calibration.Map],
) -> None:
    margins, data = calibrated(40_000, 2.0)
    before = calibration.calibration_of(margins, data)
    after = calibration.calibration_of(calibration.recalibrated(margins, data.batch.labels, fit), data)
    truth = calibration.calibration_of(margins / 2, data)
    assert before is not None
    assert after is not None
    assert truth is not None
    assert after.tenths.right >= 7 > before.tenths.right
    assert truth.log_loss <= after.log_loss < truth.log_loss + 0.1 * (before.log_loss - truth.log_loss)

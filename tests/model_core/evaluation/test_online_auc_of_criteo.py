"""Real clicks learned in the order of their time, and the evaluation beside the exact figures."""

import lzma

import numpy as np
import pytest

from model_core.evaluation.measures import summarize
from model_core.examples.batch import ExampleBatch
from model_core.hashing.contract import HashContract
from model_core.hashing.encoder import FeatureEncoder
from model_core.learning.hyperparameters import Hyperparameters
from model_core.learning.rounds import learn_batch
from model_core.learning.state import ModelState
from tests.support.shared_data import shared_file
from tests.support.streams import MINUTE, Stream, evaluated

COLUMNS = [*(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]


@pytest.fixture(scope="module")
def criteo():
    """80,000 rows as if logged in 26 hours, with the predictions made before each was learned."""
    batch = _examples(shared_file("criteo_kaggle_first80000_hash20.tsv.xz"))
    margins = learn_batch(ModelState.empty(22), Hyperparameters(), True, 0.0, batch).margins
    log_times = np.linspace(0, 26 * 60 * MINUTE, len(batch)).astype(np.int64)
    return Stream(margins, batch.labels, np.empty(0), np.empty(0, np.int64), log_times)


def _examples(path):
    encoder, encoded, labels = FeatureEncoder(HashContract()), [], []
    with lzma.open(path, "rt") as lines:
        for line in lines:
            label, *values = line.rstrip("\n").split("\t")
            pairs = zip(COLUMNS, values, strict=True)
            encoded.append(encoder.encode({name: _value(name, text) for name, text in pairs if text}))
            labels.append(int(label))
    return ExampleBatch.from_encoded(encoded, labels)


def _value(name, text):
    return int(text) if name[0] == "I" and text.lstrip("-").isdigit() else text


@pytest.mark.slow
@pytest.mark.parametrize(("window", "minutes"), [("all", 10**6), ("24h", 24 * 60), ("1h", 60)])
def test_the_auc_of_real_clicks_is_within_0_0005(criteo, window, minutes):
    clock = criteo.log_times[-1] // MINUTE
    unit = {"all": 1, "24h": 60, "1h": 5}[window]
    kept = criteo.log_times // MINUTE // unit > clock // unit - minutes // unit
    exact = summarize(criteo.margins[kept], criteo.labels[kept]).plain
    figures = evaluated(criteo).figures(window)
    assert figures.examples == kept.sum()
    assert abs(figures.auc - exact.auc) <= figures.auc_error_bound <= 0.0005
    assert figures.log_loss == pytest.approx(exact.log_loss)
    assert figures.normalized_entropy == pytest.approx(exact.normalized_entropy)
    assert figures.calibration_ratio == pytest.approx(exact.calibration_ratio)

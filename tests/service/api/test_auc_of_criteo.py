"""Real clicks over HTTP: the scraped figures beside the exact ones of the predictions that were answered."""

from __future__ import annotations

import itertools
import lzma
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from model_core.evaluation.measures import summarize
from tests.support.shared_data import shared_file
from tests.support.waiting import wait_until

COLUMNS = [*(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
ROWS, A_REQUEST = 6000, 500
HOURS = 26
FIGURE = re.compile(r"^ftrl_online_(\w+)\{([^}]*)\} (.+)$", re.MULTILINE)


def rows(first_ms: int) -> Iterator[dict[str, Any]]:
    """The first rows, as if they had happened evenly in the last 26 hours."""
    with lzma.open(shared_file("criteo_kaggle_first80000_hash20.tsv.xz"), "rt") as lines:
        for i, line in enumerate(itertools.islice(lines, ROWS)):
            label, *values = line.rstrip("\n").split("\t")
            features = {name: text for name, text in zip(COLUMNS, values, strict=True) if text}
            event_time = (first_ms + i * HOURS * 3_600_000 // ROWS) / 1000
            yield {"features": features, "label": int(label), "event_time": event_time}


def scraped(api: httpx.Client, model: str) -> dict[tuple[str, str], float]:
    """By figure and window."""
    found = {}
    for name, labels, value in FIGURE.findall(api.get("/metrics").text):
        told = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if told["model"] == model and told.get("weighting") == "importance":
            found[name, told["window"]] = float(value)
    return found


@pytest.mark.slow
def test_the_scraped_auc_is_within_its_bound_of_the_exact_one(api: httpx.Client) -> None:
    model = "criteo-auc"
    api.put(f"/models/{model}", json={"hashing": {"bits": 20}}).raise_for_status()
    now = round(time.time() * 1000)
    probabilities, labels, times = [], [], []
    examples = list(rows(now - HOURS * 3_600_000))
    for start in range(0, ROWS, A_REQUEST):
        part = examples[start : start + A_REQUEST]
        results = api.post(f"/models/{model}/update", json={"examples": part}).json()["results"]
        probabilities += [result["probability"] for result in results]
        labels += [example["label"] for example in part]
        times += [round(example["event_time"] * 1000) for example in part]
    wait_until(lambda: scraped(api, model).get(("examples", "all")) == ROWS)
    figures = scraped(api, model)
    p, y, t = np.array(probabilities), np.array(labels, np.uint8), np.array(times)
    for window, unit, minutes in (("all", 1, 10**7), ("24h", 60, 24 * 60), ("1h", 5, 60)):
        clock = t[-1] // 60_000
        kept = t // 60_000 // unit > clock // unit - minutes // unit
        exact = summarize(np.log(p[kept]) - np.log1p(-p[kept]), y[kept]).plain
        assert figures["examples", window] == kept.sum()
        assert exact.auc is not None
        difference = abs(figures["auc", window] - exact.auc)
        assert difference <= figures["auc_error_bound", window]
        assert figures["log_loss", window] == pytest.approx(exact.log_loss)
        assert figures["calibration_ratio", window] == pytest.approx(exact.calibration_ratio)
    api.delete(f"/models/{model}")

"""`ftrl reproduce comparison`: equal models are seldom called different, however often one looks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lab.experiments import comparison
from lab.experiments.comparison import Looks, World, false_alarms, is_enough, power
from model_core.evaluation.confidence_sequence import ENOUGH, evidence
from tests.support.commands import run


def test_the_looks_of_the_simulation_are_those_of_the_service() -> None:
    totals, squares = np.linspace(-300.0, 300.0, 301), np.full(301, 1000.0)
    found = is_enough(Looks(np.arange(301), totals, squares, np.zeros(301)))
    expected = [max(evidence(t, 1000.0), evidence(-t, 1000.0)) >= ENOUGH for t in totals.tolist()]
    assert found.tolist() == expected
    assert 0 < sum(expected) < 301


def test_equal_models_are_seldom_called_different_and_by_a_plain_interval_often() -> None:
    found = false_alarms("", World(0.02), 60, 60_000)
    assert found.called == found.missed <= 0.05
    assert found.plain > 0.2


def test_a_larger_gap_is_called_sooner() -> None:
    small, large = (power(World(0.2, 0.2, gap), 20, 30_000) for gap in (0.01, 0.04))
    assert large.median is not None
    assert small.median is not None
    assert large.most is not None
    assert large.median < large.most < small.median
    assert small.wrong == large.wrong == 0.0


@pytest.mark.slow
def test_the_command_writes_both_tables(tmp_path: Path) -> None:
    found = run("reproduce", "comparison", "--out", str(tmp_path), "--quick", "--json")
    assert found.returncode == 0, found.stderr
    figures = json.loads(found.stdout)
    assert [one["world"] for one in figures["alarms"]] == list(comparison.EQUAL)
    assert all(one["missed"] <= 0.05 for one in figures["alarms"])
    written = (tmp_path / "comparison-quick.md").read_text()
    assert all(name in written for name in comparison.EQUAL)

"""The tables of a model take as much memory as it has features, until it has many."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from model_core.learning.state import FULL_FROM, ModelState, TableMemory

BITS = 22
FULL_BYTES = 17 * 2**BITS

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def resident_bytes() -> int:
    """Of this process, once the kernel that takes over rows is loaded."""
    ModelState.empty(1).apply_rows(np.zeros(1, np.uint32), np.ones((1, 2)))
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def scattered(count: int) -> np.ndarray:
    return np.random.default_rng(1).choice(2**BITS, count, replace=False).astype(np.uint32)


def test_tables_are_zero_and_have_a_row_more_than_slots() -> None:
    memory = TableMemory(8)
    assert memory.rows.shape == (9, 2)
    assert memory.marks.shape == (9,)
    assert not memory.rows.any()
    assert not memory.marks.any()


@on_linux
def test_a_model_of_few_features_takes_little_memory() -> None:
    before = resident_bytes()
    state = ModelState.empty(BITS)
    state.apply_rows(scattered(200), np.ones((200, 2)))
    assert resident_bytes() - before < FULL_BYTES / 10


@on_linux
def test_a_model_that_learns_a_small_file_keeps_small_pages() -> None:
    before = resident_bytes()
    state = ModelState.empty(BITS)
    state.prepare_for(2**20)
    slots = scattered(2**BITS // FULL_FROM + 100)
    state.apply_rows(slots, np.ones((slots.size, 2)))
    assert resident_bytes() - before < FULL_BYTES / 2


def test_the_state_survives_the_change_to_large_pages() -> None:
    slots = scattered(2**BITS // FULL_FROM + 100)
    rows = np.arange(2.0 * slots.size).reshape(-1, 2)
    state = ModelState.empty(BITS)
    for start in range(0, slots.size, 500):
        state.apply_rows(slots[start : start + 500], rows[start : start + 500])
    assert state.features_seen == slots.size
    assert np.array_equal(state.rows[slots], rows)
    assert np.array_equal(state.seen_slots(), np.sort(slots))

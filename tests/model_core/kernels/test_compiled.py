"""The parts of numba that kernels rely on and that its documentation does not promise."""

from typing import Any

import numpy as np
from numba import jit, njit
from numpy.typing import NDArray

from model_core.kernels.compiled import kernel, prefetch_row

ROWS = np.arange(6.0).reshape(3, 2)


@kernel
def second_row_sum(rows: NDArray[np.float64]) -> float:
    prefetch_row(rows, 1)
    row = rows[1]
    return float(row[0] + row[1])


counted_row: Any = njit(lambda rows: rows[1])


def test_kernels_do_not_count_references() -> None:
    assert counted_row(ROWS).tolist() == [2.0, 3.0]
    assert "NRT_incref" in _code(counted_row)
    assert second_row_sum(ROWS) == 5.0
    assert "NRT_incref" not in _code(second_row_sum)


def test_prefetch_row_is_one_instruction() -> None:
    assert second_row_sum(ROWS) == 5.0
    assert "llvm.prefetch" in _code(second_row_sum)


def _code(compiled: Any) -> str:
    """The LLVM code of a function for ROWS, compiled again: numba does not show what comes from its cache."""
    again: Any = jit(**compiled.targetoptions)(compiled.py_func)
    again(ROWS)
    return "\n".join(again.inspect_llvm().values())

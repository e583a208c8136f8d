"""How kernels that only work on their caller's arrays are compiled."""

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])

# Without numba's reference counts: two atomic operations for each array at each call made the text kernels
# ten times slower.  A kernel so compiled can allocate nothing, and its caller keeps every array alive.
_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "_nrt": False}


def kernel(function: Function) -> Function:
    """Compile at the first call, and keep the machine code beside the source."""
    compiled: Function = njit(**_OPTIONS)(function)
    return compiled

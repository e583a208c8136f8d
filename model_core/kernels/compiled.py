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


def inlined_kernel(function: Function) -> Function:
    """The same for a function on a hot path, where passing a dozen arrays costs more than what it does."""
    compiled: Function = njit(forceinline=True, **_OPTIONS)(function)
    return compiled

"""Memory for the tables: small pages while a model is sparse, large ones once it would fill them anyway.

Few features in random slots touch every large page (2 MiB on x86) of a table, and the first touch of each
waits until all of it is zeroed.  With small pages a model of few features costs what it uses.  A full one is
read faster through large pages, since the processor remembers where more of it is.
"""

import contextlib
import mmap
import sys

import numpy as np
from numpy.typing import NDArray

FULL_FROM = 1024
"""Slots for each feature seen, below which large pages pay: a fifth of the small ones is in use by then."""

_COLLAPSE = 25  # MADV_COLLAPSE of Linux 6.1, for which Python has no name


class TableMemory:
    """rows float64[slots + 1, 2] and marks uint8[slots + 1], zeroed, in one piece."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._large = False
        length = slots + 1
        self._memory = mmap.mmap(-1, 17 * length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if sys.platform == "linux":
            self._advise(mmap.MADV_NOHUGEPAGE)
        self.rows: NDArray[np.float64] = np.frombuffer(self._memory, np.float64, 2 * length).reshape(-1, 2)
        self.marks: NDArray[np.uint8] = np.frombuffer(self._memory, np.uint8, length, 16 * length)

    def use_large_pages(self) -> None:
        """For who is about to fill it: what is touched from now on."""
        self._large = True
        if sys.platform == "linux":
            self._advise(mmap.MADV_HUGEPAGE)

    def settle(self, features_seen: int) -> None:
        """To be called as features come: changes to large pages once, which copies what is in use."""
        if not self._large and features_seen * FULL_FROM >= self._slots:
            self.use_large_pages()
            if sys.platform == "linux":
                self._advise(_COLLAPSE)

    def _advise(self, advice: int) -> None:
        # A kernel without large pages, or none free: it is advice, and all works without.
        with contextlib.suppress(OSError):
            self._memory.madvise(advice)

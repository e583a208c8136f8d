"""Ctrl-C while kernels are compiled or loaded."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_held() -> Iterator[None]:
    """An interrupt waits for the end of the block, a second one does not.

    The compiler calls back into Python from C, where a KeyboardInterrupt is reported and dropped: the command
    would go on as if nothing had been pressed.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone gets signals
        yield
        return
    held: list[int] = []

    def hold(number: int, _: object) -> None:
        if held:
            raise KeyboardInterrupt
        held.append(number)

    before = signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if held:
        signal.raise_signal(signal.SIGINT)

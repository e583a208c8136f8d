"""Workers tell their supervisor that they answer, over a pipe that they inherit.

The socket that they share is bound before any of them runs, and whoever connects to it then waits.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Self


class FirstReady:
    """The supervisor's, within a running loop: calls `announce` once, when the first worker answers.

    `writer`: the end of the pipe that workers inherit (file descriptor).
    """

    writer: int

    def __init__(self, announce: Callable[[], None]) -> None:
        self._announce = announce
        self._announced = False

    def __enter__(self) -> Self:
        self._reader, self.writer = os.pipe()
        asyncio.get_running_loop().add_reader(self._reader, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._reader)
        os.close(self._reader)
        os.close(self.writer)

    def _read(self) -> None:
        """Also what workers tell that are started again, or the pipe would fill up."""
        os.read(self._reader, 4096)
        if not self._announced:
            self._announced = True
            self._announce()


def tell_ready(writer: int) -> None:
    """Of a worker, when it answers; once, as it closes the pipe."""
    with os.fdopen(writer, "wb", buffering=0) as pipe:
        pipe.write(b"\n")

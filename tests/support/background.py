"""A thread that watches something while the test does something else."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self


class Watcher(ABC):
    """`with watcher:` runs `watch` in a thread; the end of the block waits for it."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self.watch)

    @abstractmethod
    def watch(self) -> None:
        """Returns soon after `stopping` is set."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stopping.set()
        self._thread.join()

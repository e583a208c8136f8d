"""Threads that send a simulation's requests, with a max number in flight."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

LOOK_SECONDS = 0.01


class Pool:
    """Worker threads. `submit` blocks while `most` requests are in flight, and raises the first failure."""

    def __init__(self, executor: ThreadPoolExecutor, most: int) -> None:
        self._executor = executor
        self._free = threading.Semaphore(most)
        self._count = 0
        self._lock = threading.Lock()
        self.failure: BaseException | None = None

    @property
    def busy(self) -> bool:
        with self._lock:
            return self._count > 0

    def submit(self, work: Any, *arguments: Any) -> None:
        if self.failure is not None:
            raise self.failure
        self._free.acquire()
        with self._lock:
            self._count += 1
        self._executor.submit(work, *arguments).add_done_callback(self._ended)

    def _ended(self, future: Future[None]) -> None:
        with self._lock:
            self._count -= 1
            self.failure = self.failure or future.exception()
        self._free.release()


@contextmanager
def pool_of(workers: int, most: int) -> Iterator[Pool]:
    """Yield a pool, and wait until all its work is done. Raises the first failure."""
    with ThreadPoolExecutor(workers) as executor:
        pool = Pool(executor, most)
        yield pool
        while pool.busy:
            time.sleep(LOOK_SECONDS)
    if pool.failure is not None:
        raise pool.failure

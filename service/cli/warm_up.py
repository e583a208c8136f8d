"""`ftrl warm-up`: compiles every kernel in advance, for the installation and the image."""

from __future__ import annotations

import glob
import multiprocessing
import os
import shutil
import signal
import tempfile
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from model_core.warm_up import Family

READERS: Final[tuple[Family, ...]] = ("requests", "vw", "libsvm")
"""Families that share kernels with each other, about half of the total time."""


def warm_up() -> None:
    """Compile the kernels, so that no first request waits for it."""
    from model_core.warm_up import warm_up as compile_kernels
    from service.runtime.kernels import VARIABLE, kernels_are_compiled, remove_stale_caches

    # An exception would be lost inside the compiler.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os._exit(128 + number))
    remove_stale_caches()
    if not kernels_are_compiled() and (os.cpu_count() or 1) > 1:
        _compile_in_two_processes(Path(os.environ[VARIABLE]))
    compile_kernels()  # compiles missing kernels and loads the others


def _compile_in_two_processes(cache: Path) -> None:
    """Compile the READERS in another process, and the other families in this one.

    numba changes the index of a function's machine code without a lock, so the other process has a cache of
    its own until it has ended.
    """
    from model_core.warm_up import ALL
    from model_core.warm_up import warm_up as compile_kernels

    cache.mkdir(parents=True, exist_ok=True)
    own = Path(tempfile.mkdtemp(prefix="part-", dir=cache))
    other = multiprocessing.get_context("spawn").Process(target=_compile_readers, args=(str(own),))
    other.start()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: _stop(number, other, own))
    compile_kernels(family for family in ALL if family not in READERS)
    other.join()
    move_kernels(own, cache)
    shutil.rmtree(own)


def _compile_readers(cache: str) -> None:
    from service.runtime.kernels import VARIABLE, leave_out_linear_algebra

    os.environ[VARIABLE] = cache  # before numba is imported
    leave_out_linear_algebra()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    from model_core.warm_up import warm_up as compile_kernels

    compile_kernels(READERS)


def _stop(number: int, other: BaseProcess, cache: Path) -> None:
    other.kill()
    other.join()
    shutil.rmtree(cache, ignore_errors=True)
    os._exit(128 + number)


def move_kernels(source: Path, target: Path) -> None:
    """Move the machine code of functions that the cache `target` lacks into it.

    A function that both have was compiled into its callers by both, so the code of one is enough.
    """
    for index in source.rglob("*.nbi"):
        place = target / index.relative_to(source)
        if place.exists():
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        for code in index.parent.glob(f"{glob.escape(index.stem)}.*.nbc"):
            code.replace(place.with_name(code.name))
        index.replace(place)

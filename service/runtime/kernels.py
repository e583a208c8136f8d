"""Where numba keeps compiled kernels: one directory for each state of the numeric core's sources.

numba's own index watches the file in which a kernel stands, not those of the functions compiled into it, so
that after a change of one of these it would silently run old code. And how a process ends that is compiling.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from model_core.warm_up import warm_up
from service.runtime.tasks import in_daemon_thread

VARIABLE = "NUMBA_CACHE_DIR"
SHARED_MEMORY = "/dev/shm"
COMPILER = "kernels"
"""Name of the thread that compiles or loads them where a stop does not wait for that."""


def choose_kernel_cache() -> None:
    """To be called before numba is imported.

    A directory that the environment names stays. Where the package cannot be written, as in an image, its
    kernels are used if it has any; else the choice is numba's own.
    """
    if os.environ.get(VARIABLE):
        return
    directory = cache_directory()
    if os.access(directory.parents[1], os.W_OK):
        os.environ[VARIABLE] = str(directory)
    elif directory.is_dir():
        os.environ[VARIABLE] = str(_linked(directory))


def kernels_are_compiled() -> bool:
    """Whether the chosen directory holds any; true where numba chose."""
    chosen = os.environ.get(VARIABLE)
    return chosen is None or any(Path(chosen).glob("*"))


def cache_directory() -> Path:
    """Under the package's __pycache__; named after a digest of its sources."""
    spec = find_spec("model_core")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    digest = hashlib.sha256()
    for source in sorted(package.rglob("*.py")):
        digest.update(source.read_bytes())
    return package / "__pycache__" / f"kernels-{digest.hexdigest()[:16]}"


def _linked(prepared: Path) -> Path:
    """A directory with links to the kernels in `prepared`, until this process ends: numba reads kernels only
    where it could write some. In memory if possible, where a container with a read-only root may write.
    """
    place = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    directory = Path(tempfile.mkdtemp(prefix="ftrl-kernels-", dir=place))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    shutil.copytree(prepared, directory, copy_function=os.symlink, dirs_exist_ok=True)
    return directory


def leave_compiler_behind() -> None:
    """Ends the process here, with exit code 0, where its COMPILER is still at work: an interpreter that is
    torn down under it may crash. What it has in hand is lost; numba puts each file into the cache in one
    step, and compiles again what the cache lacks.
    """
    if any(thread.name == COMPILER for thread in threading.enumerate()):
        atexit._run_exitfuncs()  # noqa: SLF001  as at any other end
        os._exit(0)


def remove_stale_caches() -> None:
    """Deletes what was compiled from other sources."""
    current = cache_directory()
    for directory in current.parent.glob("kernels-*"):
        if directory != current:
            shutil.rmtree(directory, ignore_errors=True)


LOOK_EVERY_SECONDS = 0.1


class StoppedBeforeStart(Exception):
    """A signal came while the kernels were compiled or loaded."""


async def warm_up_unless(stopping: Callable[[], bool]) -> None:
    """Raises StoppedBeforeStart as soon as `stopping()`, and what compiling raises."""
    warming = in_daemon_thread(warm_up, COMPILER)
    while not warming.done():
        if stopping():
            raise StoppedBeforeStart
        await asyncio.wait([warming], timeout=LOOK_EVERY_SECONDS)
    warming.result()


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

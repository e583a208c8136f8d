"""The compiled kernels of a process: where numba caches them, and how compiling them is interrupted.

numba's own index checks the file that defines a kernel, not those of the functions compiled into it, so that
after a change to one of these it would silently run old code. The cache therefore has a directory for
each state of the numeric core's sources. numba reads the variable that names it when it is imported, so that
nothing is imported here, at the top, that imports numba.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"
SHARED_MEMORY = "/dev/shm"
LINEAR_ALGEBRA = "scipy.linalg"
COMPILER = "kernels"
"""Name of the thread that compiles or loads kernels while the process can still be stopped."""
POLL_SECONDS = 0.1


class StoppedBeforeStart(Exception):
    """The process was stopped while its kernels were compiled or loaded."""


def choose_kernel_cache() -> None:
    """Set numba's cache directory; to be called before numba is imported.

    A directory that the environment names is left as it is. Where the package cannot be written, as in an
    image, the kernels that it contains are used; without any, numba's default applies.
    """
    if os.environ.get(VARIABLE):
        return
    directory = cache_directory()
    if os.access(directory.parents[1], os.W_OK):
        os.environ[VARIABLE] = str(directory)
    elif directory.is_dir():
        os.environ[VARIABLE] = str(_linked(directory))


def leave_out_linear_algebra() -> None:
    """Have this process treat scipy's linear algebra as not installed, unless it is imported already.

    numba imports it, if it can, with the first kernel of a process, for operations that no kernel here uses.
    """
    sys.modules.setdefault(LINEAR_ALGEBRA, None)  # type: ignore[arg-type]  # documented by `import`


def cache_directory() -> Path:
    """The directory under the package's __pycache__ that is named after a digest of its sources."""
    spec = find_spec("model_core")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    digest = hashlib.sha256()
    for source in sorted(package.rglob("*.py")):
        digest.update(source.read_bytes())
    return package / "__pycache__" / f"kernels-{digest.hexdigest()[:16]}"


def _linked(prepared: Path) -> Path:
    """Make a directory of links to the kernels in `prepared`, removed when this process ends.

    numba reads kernels only where it could write some. It is in memory if possible, which a container with a
    read-only root can write.
    """
    parent = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    directory = Path(tempfile.mkdtemp(prefix="ftrl-kernels-", dir=parent))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    shutil.copytree(prepared, directory, copy_function=os.symlink, dirs_exist_ok=True)
    return directory


def kernels_are_compiled() -> bool:
    """Return True if the cache directory contains kernels, or if it is numba's default."""
    chosen = os.environ.get(VARIABLE)
    return chosen is None or any(Path(chosen).glob("*"))


def remove_stale_caches() -> None:
    """Delete kernels that were compiled from other sources."""
    current = cache_directory()
    for directory in current.parent.glob("kernels-*"):
        if directory != current:
            shutil.rmtree(directory, ignore_errors=True)


async def warm_up_unless(stopping: Callable[[], bool]) -> None:
    """Compile or load the kernels of the service in a thread.

    Raises StoppedBeforeStart as soon as `stopping()` is true, and what compiling raises.
    """
    import asyncio

    from service.runtime.tasks import in_daemon_thread

    warming = in_daemon_thread(_warm_up_service, COMPILER)
    while not warming.done():
        if stopping():
            raise StoppedBeforeStart
        await asyncio.wait([warming], timeout=POLL_SECONDS)
    warming.result()


def _warm_up_service() -> None:
    from model_core.warm_up import SERVICE, warm_up

    warm_up(SERVICE)


def leave_compiler_behind() -> None:
    """End the process with exit code 0 if its COMPILER thread is still at work.

    An interpreter that is torn down under it may crash. The kernel being compiled is lost; numba writes each
    file of the cache in one step, and compiles again what is missing.
    """
    if any(thread.name == COMPILER for thread in threading.enumerate()):
        atexit._run_exitfuncs()  # noqa: SLF001  as at any other end
        os._exit(0)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Delay an interrupt until the end of the block; a second one is not delayed.

    The compiler calls back into Python from C, where a KeyboardInterrupt is reported and dropped: the command
    would go on as if Ctrl-C had not been pressed. So do calls of kernels with structured arguments, where
    it can be a segmentation fault.
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

"""Where numba keeps compiled kernels: one directory for each state of the numeric core's sources.

numba's own index watches the file in which a kernel stands, not those of the functions compiled into it, so
that after a change of one of these it would silently run old code. And how a process ends that is compiling.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
import threading
from importlib.util import find_spec
from pathlib import Path

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

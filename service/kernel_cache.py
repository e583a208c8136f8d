"""Where numba keeps compiled kernels: one directory for each state of the numeric core's sources.

numba's own index watches the file in which a kernel stands, not those of the functions compiled into it, so
that after a change of one of these it would silently run old code.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from importlib.util import find_spec
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"


def choose_kernel_cache() -> None:
    """To be called before numba is imported.

    A directory that the environment names stays, and numba's own choice where the package cannot be written.
    """
    directory = cache_directory()
    if not os.environ.get(VARIABLE) and os.access(directory.parents[1], os.W_OK):
        os.environ[VARIABLE] = str(directory)


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


def remove_stale_caches() -> None:
    """Deletes what was compiled from other sources."""
    current = cache_directory()
    for directory in current.parent.glob("kernels-*"):
        if directory != current:
            shutil.rmtree(directory, ignore_errors=True)

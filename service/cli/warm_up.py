"""`ftrl warm-up`: every kernel compiled ahead, as the installation and the image do."""

from __future__ import annotations

import os
import signal


def warm_up() -> None:
    """Compile the kernels, so that no first request waits for it."""
    from model_core.warm_up import warm_up as compile_kernels
    from service.runtime.kernels import remove_stale_caches

    for number in (signal.SIGINT, signal.SIGTERM):  # an exception would be lost inside the compiler
        signal.signal(number, lambda number, _: os._exit(128 + number))
    remove_stale_caches()
    compile_kernels()

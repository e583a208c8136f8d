"""A stop does not wait for the compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.settings import Settings
from service.storage.embedded import EmbeddedServer
from tests.support.commands import NewServingProcess, ServingProcess
from tests.support.processes import is_gone
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

LAST = "census"
"""The module whose kernels are compiled last."""
SIGTERM_EXIT = 143


def kernels(cache: Path) -> set[str]:
    return {file.name for file in cache.rglob("*.nbc")}


def wait_for_more_kernels(cache: Path, process: ServingProcess) -> None:
    """The compiler is then at the next."""
    known = len(kernels(cache))

    def is_compiled() -> bool:
        assert process.process.poll() is None, process.errors
        return len(kernels(cache)) > known

    wait_until(is_compiled, "one more kernel is compiled", seconds=300)


def stop_while_compiling(directory: Path, *words: str) -> tuple[int, ServingProcess]:
    """The exit code after a SIGTERM as soon as one more kernel is there."""
    cache = directory / "cache"
    cache.mkdir(exist_ok=True)
    process = NewServingProcess(*words, directory=directory, NUMBA_CACHE_DIR=str(cache))
    try:
        wait_for_more_kernels(cache, process)
        code = process.stop()
    finally:
        process.remove()
    assert not any(name.startswith(LAST) for name in kernels(cache)), "it went on to the end"
    assert "Traceback" not in "".join(process.errors)
    return code, process


def test_service_and_server_can_be_stopped_while_kernels_compile(tmp_path: Path) -> None:
    for _ in range(2):  # the second goes on from what the first has left in the cache
        code, _ = stop_while_compiling(tmp_path, "serve", "--data-dir", "data")
        assert code == 0
        with EmbeddedServer(Settings(data_dir=tmp_path / "data")) as server:
            assert server.started, "it was still running"


def test_all_processes_of_a_service_end_while_each_compiles(tmp_path: Path) -> None:
    code, process = stop_while_compiling(tmp_path, "serve", "--workers", "2", "--data-dir", "data")
    assert code == 0
    children = [process.wait_for(rf"{role} is process \d+") for role in ("api-1", "api-2", "learner")]
    assert all(is_gone(int(child.split()[-1])) for child in children)


def test_a_stopped_warm_up_says_that_it_did_not_finish(tmp_path: Path) -> None:
    code, _ = stop_while_compiling(tmp_path, "warm-up")
    assert code == SIGTERM_EXIT

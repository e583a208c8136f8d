"""Compiled kernels are kept per state of the sources, so that none is ever older than what it calls."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared_data import REPOSITORY

LOOK = "import os; from service.kernel_cache import *; choose_kernel_cache(); print(os.environ.get(VARIABLE))"
CLEAN = "from service.kernel_cache import *; remove_stale_caches()"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A numeric core of two files, which stands before the real one on the path of `run`."""
    directory = tmp_path / "model_core"
    (directory / "updates").mkdir(parents=True)
    (directory / "__init__.py").write_text("")
    (directory / "updates" / "families.py").write_text("ONE = 1\n")
    return directory


def run(package: Path, code: str, cache: str | None = None) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    environment |= {"PYTHONPATH": f"{package.parent}{os.pathsep}{REPOSITORY}"}
    environment |= {} if cache is None else {"NUMBA_CACHE_DIR": cache}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=package.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_kernels_are_kept_inside_the_package_under_the_digest_of_its_sources(package: Path) -> None:
    first = run(package, LOOK)
    assert Path(first).parent == package / "__pycache__"
    assert run(package, LOOK) == first
    (package / "updates" / "families.py").write_text("ONE = 2\n")
    assert run(package, LOOK) != first


def test_a_directory_that_the_environment_names_stays(package: Path) -> None:
    assert run(package, LOOK, cache="/elsewhere") == "/elsewhere"


def test_an_empty_variable_names_no_directory(package: Path) -> None:
    assert run(package, LOOK, cache="") == run(package, LOOK)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_package_that_cannot_be_written_leaves_the_choice_to_numba(package: Path) -> None:
    package.chmod(0o555)
    assert run(package, LOOK) == "None"
    package.chmod(0o755)


def test_only_what_other_sources_gave_is_removed(package: Path) -> None:
    current, stale = Path(run(package, LOOK)), package / "__pycache__" / "kernels-0123456789abcdef"
    for directory in (current, stale):
        (directory / "sub").mkdir(parents=True)
        (directory / "sub" / "kernel.nbc").touch()
    run(package, CLEAN)
    assert (current / "sub" / "kernel.nbc").exists()
    assert not stale.exists()

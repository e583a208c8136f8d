"""Compiled kernels are kept per state of the sources, so that none is ever older than what it calls."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from service.cli.warm_up import move_kernels
from tests.support.shared_data import REPOSITORY

LOOK = (
    "import os; from service.runtime.kernels import *; choose_kernel_cache(); print(os.environ.get(VARIABLE))"
)
CLEAN = "from service.runtime.kernels import *; remove_stale_caches()"
LOOK_INSIDE = f"{LOOK}; print(*[f.read_text() for f in Path(os.environ[VARIABLE]).rglob('*.nbi')])"
COMPILE = """
from service.runtime.kernels import choose_kernel_cache
choose_kernel_cache()
from numba.core import event
from model_core.warm_up import warm_up
with event.install_recorder("numba:compile") as compiled:
    warm_up()
print(len(compiled.buffer))
"""
# In a namespace of its own, where even root cannot write to the directory.
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro,nosuid,nodev "$0" && exec "$@"'
UNSHARE = ("unshare", "--map-root-user", "--mount", "sh", "-c", READ_ONLY)

needs_namespaces = pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run([*UNSHARE, "/usr", "true"], capture_output=True, check=False).returncode != 0,
    reason="this system makes no mount namespaces (unshare)",
)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A numeric core of two files, which stands before the real one on the path of `run`."""
    directory = tmp_path / "model_core"
    (directory / "updates").mkdir(parents=True)
    (directory / "__init__.py").write_text("")
    (directory / "updates" / "families.py").write_text("ONE = 1\n")
    return directory


def run(package: Path, code: str, cache: str | None = None, *, read_only: bool = False) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    environment |= {"PYTHONPATH": f"{package.parent}{os.pathsep}{REPOSITORY}"}
    environment |= {} if cache is None else {"NUMBA_CACHE_DIR": cache}
    return subprocess.run(
        [*((*UNSHARE, str(package)) if read_only else ()), sys.executable, "-c", code],
        cwd=package.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_kernels_are_cached_under_the_digest_of_the_sources(package: Path) -> None:
    first = run(package, LOOK)
    assert Path(first).parent == package / "__pycache__"
    assert run(package, LOOK) == first
    (package / "updates" / "families.py").write_text("ONE = 2\n")
    assert run(package, LOOK) != first


def test_a_directory_that_the_environment_names_stays(package: Path) -> None:
    assert run(package, LOOK, cache="/elsewhere") == "/elsewhere"


def test_an_empty_variable_names_no_directory(package: Path) -> None:
    assert run(package, LOOK, cache="") == run(package, LOOK)


@needs_namespaces
def test_a_read_only_package_without_kernels_uses_numbas_directory(
    package: Path,
) -> None:
    assert run(package, LOOK, read_only=True) == "None"


@needs_namespaces
def test_the_kernels_of_a_read_only_package_are_linked_until_exit(package: Path) -> None:
    kernels = Path(run(package, LOOK))
    (kernels / "sub").mkdir(parents=True)
    (kernels / "sub" / "kernel.nbi").write_text("compiled")
    directory, content = run(package, LOOK_INSIDE, read_only=True).splitlines()
    assert content == "compiled"
    assert Path(directory) != kernels
    assert not Path(directory).exists()


@needs_namespaces
@pytest.mark.slow
def test_a_read_only_package_is_not_compiled_again() -> None:
    package = REPOSITORY / "model_core"
    run(package, COMPILE)
    assert run(package, COMPILE, read_only=True) == "0"


def test_only_what_other_sources_gave_is_removed(package: Path) -> None:
    current, stale = Path(run(package, LOOK)), package / "__pycache__" / "kernels-0123456789abcdef"
    for directory in (current, stale):
        (directory / "sub").mkdir(parents=True)
        (directory / "sub" / "kernel.nbc").touch()
    run(package, CLEAN)
    assert (current / "sub" / "kernel.nbc").exists()
    assert not stale.exists()


def test_kernels_of_another_process_are_moved_unless_there_are_any(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    files = ("m/m.f-1.py311.nbi", "m/m.f-1.py311.1.nbc", "m/m.f-1.py311.2.nbc", "m/m.f-12.py311.nbi")
    for cache, names in ((source, files), (target, files[3:])):
        for name in names:
            (cache / name).parent.mkdir(parents=True, exist_ok=True)
            (cache / name).write_text(cache.name)
    move_kernels(source, target)
    assert [(target / name).read_text() for name in files] == ["source", "source", "source", "target"]

"""The client as a distribution of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from service import __version__
from tests.support.shared_data import REPOSITORY

NEEDED = "import ftrl_client, sys; print(sorted({name.partition('.')[0] for name in sys.modules}))"


@pytest.mark.slow
def test_the_wheel_has_the_client_alone_and_needs_httpx_alone(tmp_path: Path) -> None:
    source = tmp_path / "ftrl_client"
    shutil.copytree(
        REPOSITORY / "ftrl_client",
        source,
        ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"),
    )
    build = ("pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(tmp_path))
    subprocess.run([sys.executable, "-m", *build, str(source)], check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    assert wheel.name == f"ftrl_client-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        [metadata] = [name for name in names if name.endswith("METADATA")]
        requires = Parser().parsestr(files.read(metadata).decode()).get_all("Requires-Dist")
    assert requires == ["httpx>=0.28"]
    modules = {path.name for path in (REPOSITORY / "ftrl_client").glob("*.py")}
    assert {Path(name).name for name in names if not name.endswith("/METADATA")} == {
        *modules,
        *("py.typed", "LICENSE", "WHEEL", "top_level.txt", "RECORD"),
    }
    assert {name.partition("/")[0] for name in names} <= {"ftrl_client", metadata.partition("/")[0]}


def test_it_imports_nothing_of_the_service() -> None:
    found = subprocess.run(
        [sys.executable, "-c", NEEDED], cwd=REPOSITORY, check=True, capture_output=True, text=True
    ).stdout
    assert "'httpx'" in found
    assert not any(f"'{name}'" in found for name in ("lab", "model_core", "numpy", "pydantic", "service"))

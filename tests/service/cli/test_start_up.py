"""A command imports what it uses, and no more: imports are most of the time that short commands take."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer

from service.cli.main import COMMANDS
from tests.support.commands import environment

HTTP_AND_REDIS = {"fastapi", "starlette", "uvicorn", "redis", "httpx"}
LINEAR_ALGEBRA = {"scipy.linalg.blas", "scipy.linalg.cython_blas"}
MAX_COLLECTIONS = 50
SLOW = HTTP_AND_REDIS | {"numba", "numpy", "pydantic", "typer", "rich", "asyncio"}
OWN = {"lab", "model_core", "service"}
MAX_OWN_MODULES = 60
RUN = """
import sys
sys.argv = ["ftrl", *sys.argv[1:]]
{before}
from service.cli.main import main
try:
    main()
finally:
    import gc
    print("COLLECTIONS", sum(one["collections"] for one in gc.get_stats()), file=sys.stderr)
    print("MODULES", *sys.modules, file=sys.stderr)
"""


def run(*words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUN.format(before=before), *words],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def modules_of(*words: str) -> set[str]:
    """Every module that the command has imported at its end."""
    done = run(*words)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.rpartition("MODULES ")[2].split())


@pytest.mark.parametrize("word", ["--help", "version", "--version"])
def test_help_and_version_import_nothing_slow(word: str) -> None:
    assert not modules_of(word) & SLOW


@pytest.mark.parametrize("words", [("serve", "--help"), ("alias", "list", "--help"), ("replay", "--help")])
def test_help_of_a_command_imports_neither_http_nor_redis_nor_kernels(words: tuple[str, ...]) -> None:
    assert not modules_of(*words) & (HTTP_AND_REDIS | {"numba", "numpy", "rich"})


def test_a_dry_run_imports_few_modules_and_no_http(tmp_path: Path) -> None:
    (tmp_path / "clicks.vw").write_text("1 |f a=b x:2\n-1 |f a=c\n")
    imported = modules_of("replay", "--dry-run", str(tmp_path / "clicks.vw"))
    own = sorted(name for name in imported if name.partition(".")[0] in OWN)
    assert "model_core.text.parser" in own
    assert len(own) <= MAX_OWN_MODULES, own
    assert not imported & HTTP_AND_REDIS
    assert not imported & LINEAR_ALGEBRA, "numba imports it, if it can, and no kernel uses it"


def test_a_start_searches_rarely_for_garbage(tmp_path: Path) -> None:
    (tmp_path / "clicks.vw").write_text("1 |f a=b x:2\n")
    done = run("replay", "--dry-run", str(tmp_path / "clicks.vw"))
    assert done.returncode == 0, done.stderr
    assert int(done.stderr.rpartition("COLLECTIONS ")[2].split()[0]) <= MAX_COLLECTIONS


@pytest.mark.parametrize("name", COMMANDS)
def test_the_overview_has_the_summary_of_each_command(name: str) -> None:
    command = COMMANDS[name]
    found = getattr(import_module(f"service.cli.{command.module}"), command.function)
    if command.summary and not isinstance(found, typer.Typer):
        assert command.summary == str(inspect.getdoc(found)).partition("\n")[0]


@pytest.mark.parametrize(
    "words",
    [
        ("tune", "x.vw"),
        ("whatif", "--grid", "[]"),
        ("reproduce", "table1", "--data", "."),
        ("simulate", "--seconds", "1"),
    ],
)
def test_where_lab_is_not_installed_its_commands_say_so(words: tuple[str, ...]) -> None:
    done = run(*words, before="sys.modules['lab'] = None")
    assert done.returncode == 1
    assert "needs the package `lab`, which this installation leaves out" in done.stderr


def test_other_commands_do_not_need_lab() -> None:
    assert run("serve", "--help", before="sys.modules['lab'] = None").returncode == 0


def test_a_missing_extra_is_named() -> None:
    done = run("reproduce", "table1", "--data", ".", before="sys.modules['joblib'] = None")
    assert done.returncode == 1
    assert "pip install 'ftrl-service[experiments]'" in done.stderr

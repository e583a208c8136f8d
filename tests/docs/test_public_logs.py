"""The figures of public logs in docs/file-formats.md are those of the commands beside them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess

import pytest
from _pytest.mark import ParameterSet

from tests.support.commands import FTRL, environment, run
from tests.support.shared_data import REPOSITORY, shared_file

_ROW = re.compile(r"\| ([^|]+) \| `(DIR/[^`]+)` \| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|")
_PIPE_ROW = re.compile(
    r"\| ([^|]+) \| `(\w+ ?\w*)` \| `?([^|`]*)`? \| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|"
)
_TABLE = (REPOSITORY / "docs" / "file-formats.md").read_text().partition("<!-- public logs -->")[2]
_FUNCTIONS = _TABLE.partition("```bash\n")[2].partition("```")[0]
LOGS = [match.groups() for match in _ROW.finditer(_TABLE)]
PIPES = [match.groups() for match in _PIPE_ROW.finditer(_TABLE)]
LARGE = ("Criteo Kaggle", "Newsgroup posts")
FILES = {
    "reviews": "sentiment_processed_acl.tar.xz",
    "news20": "news20_like.tsv.xz",
    "vw_tests": "vw_ftrl_tests.tar.xz",
}


def test_the_tables_have_logs() -> None:
    assert set(LARGE) <= {name for name, *_ in (*LOGS, *PIPES)}
    assert {words.split()[0] for _, words, *_ in PIPES} == set(FILES)


def _cases(table: list[tuple[str, ...]]) -> list[ParameterSet]:
    return [
        pytest.param(*figures, id=name, marks=[pytest.mark.slow] if name in LARGE else [])
        for name, *figures in table
    ]


@pytest.mark.parametrize(("words", "rows", "click_rate", "log_loss", "auc"), _cases(LOGS))
def test_a_command_gives_the_figures_beside_it(
    words: str, rows: str, click_rate: str, log_loss: str, auc: str
) -> None:
    file, *flags = shlex.split(words)
    path = shared_file(file.removeprefix("DIR/"))
    done = run("replay", str(path), *flags, "--dry-run", "--json")
    assert _figures(done) == (rows, click_rate, log_loss, auc)


@pytest.mark.parametrize(("words", "flags", "rows", "click_rate", "log_loss", "auc"), _cases(PIPES))
def test_a_pipe_gives_the_figures_beside_it(
    words: str, flags: str, rows: str, click_rate: str, log_loss: str, auc: str
) -> None:
    folder = shared_file(FILES[words.split(maxsplit=1)[0]]).parent
    ftrl = shlex.join([*FTRL, *["replay", "-", "--format", "vw", "--dry-run", "--json"], *flags.split()])
    script = f"set -o pipefail\n{_FUNCTIONS}\n{words} | {ftrl}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environment(DIR=str(folder)), check=False
    )
    assert _figures(done) == (rows, click_rate, log_loss, auc)


def _figures(done: subprocess.CompletedProcess[str]) -> tuple[str, str, str, str]:
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return (
        f"{found['rows']:,}",
        f"{found['positives'] / found['rows']:.4f}",
        f"{found['log_loss']:.5f}",
        f"{found['auc']:.5f}",
    )

"""The figures of public logs in docs/file-formats.md are those of the commands beside them."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from tests.support.commands import run
from tests.support.shared_data import REPOSITORY, shared_file

_ROW = re.compile(r"\| ([^|]+) \| `(DIR/[^`]+)` \| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|")
_TABLE = (REPOSITORY / "docs" / "file-formats.md").read_text().partition("<!-- public logs -->")[2]
LOGS = [match.groups() for match in _ROW.finditer(_TABLE)]
LARGE = "Criteo Kaggle"


def test_the_table_has_logs() -> None:
    assert LARGE in [name for name, *_ in LOGS]


@pytest.mark.parametrize(
    ("words", "rows", "click_rate", "log_loss", "auc"),
    [
        pytest.param(*figures, id=name, marks=[pytest.mark.slow] if name == LARGE else [])
        for name, *figures in LOGS
    ],
)
def test_a_command_gives_the_figures_beside_it(
    words: str, rows: str, click_rate: str, log_loss: str, auc: str
) -> None:
    file, *flags = shlex.split(words)
    path = shared_file(file.removeprefix("DIR/"))
    done = run("replay", str(path), *flags, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    figures = (
        f"{found['rows']:,}",
        f"{found['positives'] / found['rows']:.4f}",
        f"{found['log_loss']:.5f}",
        f"{found['auc']:.5f}",
    )
    assert figures == (rows, click_rate, log_loss, auc)

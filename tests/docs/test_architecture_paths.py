"""The paths in docs/architecture.md are those that requests take, by a trace of real ones."""

from __future__ import annotations

import re

import pytest

from tests.support.shared_data import REPOSITORY
from tests.support.trace import NOT_COUNTED, Trace, trace

ARCHITECTURE = REPOSITORY / "docs" / "architecture.md"
MAX_FILES = {"predict": 12, "update": 30, "restore": 30}
HEADINGS = {
    "predict": "One prediction, file by file",
    "update": "One update, file by file",
    "restore": "One restore, file by file",
}


@pytest.fixture(scope="module")
def traced() -> Trace:
    return trace()


def documented(heading: str) -> list[str]:
    """The Python file that begins each item of a section's numbered list."""
    text = ARCHITECTURE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `([\w/]+\.py)`", text, re.MULTILINE)


@pytest.mark.parametrize("request_name", HEADINGS)
def test_the_document_names_the_files_in_order(traced: Trace, request_name: str) -> None:
    files = getattr(traced, request_name)
    assert documented(HEADINGS[request_name]) == files
    assert len(files) <= MAX_FILES[request_name]
    assert not any(path.startswith(NOT_COUNTED) for path in files)

"""Where the real data is: never in this repository, because of its licences."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def data_directory() -> Path:
    """FTRL_DATA, or the directory `shared/data` beside the repository. It need not exist."""
    return Path(os.environ.get("FTRL_DATA") or REPOSITORY.parent / "shared" / "data")


def shared_file(name: str) -> Path:
    """A file of the data directory, by its name; skips the test where it is missing."""
    path = data_directory() / name
    if not path.exists():
        pytest.skip(f"{path} is not there: set FTRL_DATA to the directory that holds {name}")
    return path

"""Service processes and proxies for the tests of faults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import Launch, ServiceProcess

SMALL = {"hashing": {"bits": 16}}
QUICK = {"lease_seconds": 1.5}


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """`launch("api", url, **settings)`: a process, not yet ready, whose model `default` is small."""
    config = tmp_path / "small.json"
    config.write_text(json.dumps(SMALL))
    launched: list[ServiceProcess] = []

    def make(command: str, redis_url: str, **settings: Any) -> ServiceProcess:
        values = {"default_model": config, "data_dir": tmp_path / "data"} | QUICK | settings
        launched.append(ServiceProcess(command, redis_url, tmp_path, **values))
        return launched[-1]

    yield make
    for process in launched:
        process.remove()

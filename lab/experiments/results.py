"""Stores finished work in a directory, one small file each, so that an interrupted run can be resumed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from service.snapshots.store.objects import write_whole


class ResultsDirectory:
    """Each file is named after a digest of the identity of what it is the outcome of, and contains both.

    An identity is canonical JSON of everything that the outcome depends on.
    """

    def __init__(self, directory: Path) -> None:
        """Create the directory if it does not exist. Raises OSError."""
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def find(self, name: str, identity: str) -> dict[str, Any] | None:
        """The outcome of exactly this; None if it is not stored or its file is damaged."""
        try:
            found = json.loads(self._path(name, identity).read_text())
            outcome = found["outcome"]
            return outcome if found["pass"] == json.loads(identity) and isinstance(outcome, dict) else None
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            return None

    def keep(self, name: str, identity: str, outcome: dict[str, Any]) -> None:
        """Write atomically: a process killed here leaves at most a temporary file, which is never read."""
        content = json.dumps({"pass": json.loads(identity), "outcome": outcome}, indent=1)
        write_whole(self._path(name, identity), content.encode())

    def _path(self, name: str, identity: str) -> Path:
        return self._directory / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:20]}.json"

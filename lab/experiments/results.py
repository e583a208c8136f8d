"""Stores finished passes in a directory, one small file each, so that an interrupted run can be resumed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from lab.experiments.datasets import Dataset
from lab.experiments.passes import Outcome, Pass
from service.snapshots.store.objects import write_whole


class ResultsDirectory:
    """Each file is named after a digest of the identity of its pass and also contains that identity."""

    def __init__(self, directory: Path) -> None:
        """Create the directory if it does not exist. Raises OSError."""
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def find(self, dataset: Dataset, one: Pass) -> Outcome | None:
        """The outcome of exactly this pass; None if it is not stored or its file is damaged."""
        identity = one.identity(dataset)
        try:
            found = json.loads(self._path(dataset, identity).read_text())
            if found["pass"] != json.loads(identity):
                return None
            return Outcome.from_json(found["outcome"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            return None  # the pass is run again and the file replaced

    def keep(self, dataset: Dataset, one: Pass, outcome: Outcome) -> None:
        """Write atomically: a process killed here leaves at most a temporary file, which is never read."""
        identity = one.identity(dataset)
        content = json.dumps({"pass": json.loads(identity), "outcome": outcome.to_json()}, indent=1)
        write_whole(self._path(dataset, identity), content.encode())

    def _path(self, dataset: Dataset, identity: str) -> Path:
        return self._directory / f"{dataset.name}-{hashlib.sha256(identity.encode()).hexdigest()[:20]}.json"

"""The finished passes in a directory, one small file each, so that a run that was stopped goes on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from lab.experiments.datasets import Dataset
from lab.experiments.passes import Outcome, Pass
from service.snapshots.store.objects import write_whole


class ResultsDirectory:
    """A file is named after the identity of its pass, which it also holds: other parameters, other files."""

    def __init__(self, directory: Path) -> None:
        """Made where it is not there. Raises OSError."""
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def find(self, dataset: Dataset, one: Pass) -> Outcome | None:
        """The outcome of exactly this pass; None where there is none, or its file is damaged."""
        identity = one.identity(dataset)
        try:
            found = json.loads(self._path(dataset, identity).read_text())
            if found["pass"] != json.loads(identity):
                return None
            return Outcome.from_json(found["outcome"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            return None  # it is run again, and the file replaced

    def keep(self, dataset: Dataset, one: Pass, outcome: Outcome) -> None:
        """All or nothing: whoever is killed here leaves at most a file that nobody reads."""
        identity = one.identity(dataset)
        content = json.dumps({"pass": json.loads(identity), "outcome": outcome.to_json()}, indent=1)
        write_whole(self._path(dataset, identity), content.encode())

    def _path(self, dataset: Dataset, identity: str) -> Path:
        return self._directory / f"{dataset.name}-{hashlib.sha256(identity.encode()).hexdigest()[:20]}.json"

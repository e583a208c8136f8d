"""Records in a file how far a replay over HTTP has come, so that the next one continues there.

Every example has an event id: its own, or one made of the replay's and its number. Those that were sent
after the position in the file are sent again under the same ids, and learned once as long as the service
knows these.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from model_core.text.problems import LineError
from service.errors import CommandFailure
from service.parsing.files.rows import Row
from service.snapshots.store.objects import write_whole

SECONDS_BETWEEN_WRITES = 0.5

log = logging.getLogger(__name__)


class ProgressFile:
    """position: the number of rows and bad lines that need not be read again."""

    def __init__(self, path: Path, model: str, incarnation: str, files: tuple[str, ...]) -> None:
        """Raises CommandFailure if the file is that of another replay, or none of this command."""
        self._path = path
        self._written_at = -math.inf
        self._document: dict[str, Any] = {
            "model": model,
            "incarnation": incarnation,
            "files": list(files),
            "ids": f"replay-{secrets.token_hex(8)}",
            "position": 0,
            "settled": True,
        }
        if path.exists():
            self._read()
        self.position: int = self._document["position"]
        self._was_settled: bool = self._document["settled"]
        self.record(self.position)

    def _read(self) -> None:
        try:
            found = json.loads(self._path.read_bytes())
            if found.keys() != self._document.keys():
                raise ValueError("other fields")
        except (OSError, ValueError, AttributeError) as wrong:
            raise CommandFailure(f"--resume {self._path}: not written by a replay: {wrong}") from None
        now = self._document
        remedy = "give each replay a file of its own, or remove it to begin with the first row"
        for field, what in (("model", "into model"), ("incarnation", "into a former model of this name,")):
            if found[field] != now[field]:
                raise CommandFailure(
                    f"--resume {self._path}: that replay was {what} {found[field]}: {remedy}"
                )
        if now["files"][: len(found["files"])] != found["files"]:
            raise CommandFailure(f"--resume {self._path}: that replay was of other files: {remedy}")
        if not found["settled"]:
            log.warning(
                "the replay was stopped while the service had rows that it had not answered: those after row"
                " %d are sent again, and learned once if it knows their ids"
                " (FTRL_EVENT_ID_RETENTION_SECONDS)",
                found["position"],
            )
        self._document = found | {"files": now["files"]}

    def remaining(self, items: Iterable[Row | LineError]) -> Iterator[Row | LineError]:
        """Yield the items after the position, rows with an event id. Raises CommandFailure if there are fewer
        items than that.
        """
        number = 0
        for number, item in enumerate(items, 1):
            if number > self.position:
                yield self._with_id(item, number)
        if number < self.position:
            raise CommandFailure(
                f"--resume {self._path}: {self.position:,} rows were learned, but there are only {number:,}"
            )
        self._was_settled = True  # whatever was in doubt has been sent again

    def _with_id(self, item: Row | LineError, number: int) -> Row | LineError:
        if isinstance(item, LineError) or item.event_id is not None:
            return item
        return item._replace(event_id=f"{self._document['ids']}-{number}")

    def record(self, position: int, *, ends: bool = False, outstanding: bool = True) -> None:
        """Record that all rows up to the position were learned. Raises OSError.

        ends: no further row is sent. outstanding: rows after the position may have been sent.
        """
        settled = self._was_settled and not outstanding
        self._document |= {"position": position, "settled": settled}
        now = time.monotonic()
        if ends or now - self._written_at >= SECONDS_BETWEEN_WRITES:
            write_whole(self._path, json.dumps(self._document).encode() + b"\n")
            self._written_at = now

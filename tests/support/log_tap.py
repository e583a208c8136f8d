"""A model's log, read by a test while it grows."""

from __future__ import annotations

import time

import redis

from service.storage.records import LOG_START, LogEntry, LogId
from tests.support.background import Watcher
from tests.support.servers import ServerProcess

ENTRIES_A_READ = 1000
BLOCK_MS = 500
PAUSE_SECONDS = 0.02


class LogTap(Watcher):
    """`with LogTap(server, key) as tap:` has in `tap.entries` all that the log ever had, also what
    a full server has trimmed since. The server may be killed and paused meanwhile, if it forgets nothing.
    """

    def __init__(self, server: ServerProcess, key: str) -> None:
        super().__init__()
        self.entries: list[LogEntry] = []
        self._server = server
        self._key = key

    @property
    def through(self) -> LogId:
        return self.entries[-1].id if self.entries else LOG_START

    def gaps(self) -> list[str]:
        """Where the numbers of the examples are not dense: what the tap has missed, or the log has twice."""
        found, following = [], 0
        for entry in self.entries:
            if entry.first_number != following:
                found.append(f"entry {entry.id} begins with example {entry.first_number}, not {following}")
            following = (entry.first_number or 0) + entry.examples
        return found

    def watch(self) -> None:
        with self._server.client(socket_timeout=5, protocol=2) as client:
            # The client's own callback would merge equal fields.
            client.set_response_callback("XREAD", lambda reply, **_: reply)
            while not self.stopping.is_set():
                try:
                    self._read(client)
                except (redis.RedisError, OSError):
                    time.sleep(PAUSE_SECONDS)

    def _read(self, client: redis.Redis) -> None:
        words = ("XREAD", "COUNT", ENTRIES_A_READ, "BLOCK", BLOCK_MS, "STREAMS", self._key, str(self.through))
        for _, found in client.execute_command(*words) or ():
            self.entries += [LogEntry.parse(entry, fields) for entry, fields in found]

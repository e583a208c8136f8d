"""`ftrl` processes against a real server, for tests that kill and pause them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.commands import ServingProcess

Launch = Callable[..., "ServiceProcess"]

SMALL = {"hashing": {"bits": 16}}
QUICK: dict[str, object] = {"lease_seconds": 1.5, "redis_timeout_seconds": 0.5, "update_timeout_seconds": 2.0}
"""Short time-outs for the tests of faults."""


class ServiceProcess(ServingProcess):
    """`ftrl COMMAND` that uses the server at `redis_url`; the settings are by their names in Settings."""

    def __init__(self, command: str, redis_url: str, directory: Path, **settings: object) -> None:
        variables = {f"FTRL_{name.upper()}": str(value) for name, value in settings.items()}
        super().__init__(command, directory=directory, **({"FTRL_REDIS_URL": redis_url} | variables))

    def pause(self) -> None:
        """SIGSTOP: as a long garbage collection, a suspended container or a page storm does it."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def logged(self, text: str) -> bool:
        return text in self.log


@contextlib.contextmanager
def launcher(directory: Path) -> Iterator[Launch]:
    """`launch("api", url, **settings)`: a process, not yet ready, with a small model `default` and
    short time-outs."""
    config = directory / "small.json"
    config.write_text(json.dumps(SMALL))
    launched: list[ServiceProcess] = []

    def launch(command: str, redis_url: str, **settings: object) -> ServiceProcess:
        values: dict[str, object] = {"default_model": config, "data_dir": directory / "data"} | QUICK
        launched.append(ServiceProcess(command, redis_url, directory, **(values | settings)))
        return launched[-1]

    try:
        yield launch
    finally:
        for process in launched:
            process.remove()


async def ready(*processes: ServiceProcess) -> None:
    """Waits until each API process takes updates. The loop goes on meanwhile: a proxy may run in it."""
    await asyncio.gather(*(asyncio.to_thread(process.wait_until_ready) for process in processes))


def is_gone(pid: int) -> bool:
    """True for a process that has ended, also one that was not waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    except FileNotFoundError:
        return True

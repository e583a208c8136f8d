"""A real Redis-protocol server as a process that a test can kill, pause and restart."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

import pytest
import redis
import redis.asyncio

from service.storage.embedded_binary import binary_path

Kind = Literal["valkey", "redis"]
EMPTY = '""'


class ServerProcess:
    """A server on a unix socket, or on a TCP port of 127.0.0.1 if `port` is given.

    `kind` chooses the bundled Valkey or the system's redis-server; the test is skipped where that is missing.
    Further keywords are configuration, with underscores for hyphens. Data that was acknowledged survives
    `kill9()` and `stop()` with `appendonly`, and is there after `start()`: the kernel has it before the
    reply; not so with `appendfsync` everysec, where the server may keep it back while the disk is slow.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        kind: Kind = "valkey",
        port: int = 0,
        appendonly: bool = True,
        appendfsync: str = "no",
        maxmemory: int | str = 0,
        **config: object,
    ) -> None:
        # Not pytest's tmp_path: the path of a socket holds about a hundred bytes.
        self.directory = directory or Path(tempfile.mkdtemp(prefix="ftrl-", dir="/tmp"))
        self.kind = kind
        self.port = port
        self.config: dict[str, object] = {
            "appendonly": "yes" if appendonly else "no",
            "appendfsync": appendfsync,
            "maxmemory": maxmemory,
            "maxmemory-policy": "noeviction",
            "save": "",
            **{name.replace("_", "-"): value for name, value in config.items()},
        }
        self.process: subprocess.Popen[bytes] | None = None
        atexit.register(self.remove)  # for a test run that breaks off before its fixtures are torn down

    @property
    def socket_path(self) -> Path:
        return self.directory / "server.sock"

    @property
    def log_path(self) -> Path:
        return self.directory / "server.log"

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0" if self.port else f"unix://{self.socket_path}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def client(self, **options: Any) -> redis.Redis:
        """A synchronous client for the test itself; bytes in, bytes out."""
        client: redis.Redis = redis.Redis.from_url(self.url, **options)
        return client

    def async_client(self) -> redis.asyncio.Redis:
        """The same for a test in an event loop."""
        client: redis.asyncio.Redis = redis.asyncio.Redis.from_url(self.url, protocol=2)
        return client

    def start(self, wait_seconds: float = 60.0) -> ServerProcess:
        """Start and wait until the data is loaded."""
        assert self.process is None, "it runs already"
        self.socket_path.unlink(missing_ok=True)
        text = "".join(f"{name} {value if value != '' else EMPTY}\n" for name, value in self.config.items())
        text += f"port {self.port}\nbind 127.0.0.1\nunixsocket server.sock\n"
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [executable_of(self.kind), "-"],
                cwd=self.directory,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        assert self.process.stdin is not None
        with self.process.stdin as stdin:
            stdin.write(text.encode())
        self._wait_until_ready(wait_seconds)
        return self

    def kill9(self) -> None:
        """SIGKILL, as a crash or the kernel's out-of-memory killer does it."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM: everything is written before it ends. Does nothing on a server that is not running."""
        if self.process is not None:
            self.resume()
            self._end(signal.SIGTERM)

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        """End the server, however it is, and delete its data."""
        if self.process is not None:
            self.kill9()
        shutil.rmtree(self.directory, ignore_errors=True)
        atexit.unregister(self.remove)

    def _end(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(timeout=60)
        self.process = None

    def _wait_until_ready(self, seconds: float) -> None:
        assert self.process is not None
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(redis.RedisError, OSError), self.client(socket_timeout=1) as client:
                client.ping()
                return
            time.sleep(0.005)
        log = self.log_path.read_text(errors="replace")[-2000:]
        self._end(signal.SIGKILL)
        pytest.fail(f"the server did not start:\n{log}")


FIRST_PORT = 10_000
PORTS_OF_A_WORKER = 1000
PORT_RANGES = 22
"""All below the ports that the kernel gives to outgoing connections."""
_turns = itertools.count(random.SystemRandom().randrange(PORTS_OF_A_WORKER))


def free_port() -> int:
    """A port of this worker's range, each in turn: a test takes several before a server listens on the first.

    TEST_PORTS_FROM_WORKER shifts the ranges of a suite that runs beside another.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    worker += int(os.environ.get("TEST_PORTS_FROM_WORKER", "0"))
    first = FIRST_PORT + PORTS_OF_A_WORKER * (worker % PORT_RANGES)
    while True:
        port = first + next(_turns) % PORTS_OF_A_WORKER
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def executable_of(kind: Kind) -> str:
    if kind == "valkey":
        return str(binary_path())
    found = shutil.which("redis-server")
    if found is None:
        pytest.skip("redis-server is not installed (Debian: apt install redis-server)")
    return found

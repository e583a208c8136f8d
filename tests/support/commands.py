"""The `ftrl` command as a process, called as a person calls it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.support.fork_server import ForkedProcess, fork_server
from tests.support.shared_data import REPOSITORY
from tests.support.waiting import wait_until

FTRL = (sys.executable, "-m", "service")
PATIENT = {"FTRL_REDIS_TIMEOUT_SECONDS": "4", "FTRL_UPDATE_TIMEOUT_SECONDS": "20"}
"""Time-outs that a busy machine does not reach."""


def environment(**variables: str) -> dict[str, str]:
    """The environment without settings, with this repository's packages, and with `variables`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FTRL_")}
    return kept | {"PYTHONPATH": str(REPOSITORY), "COLUMNS": "200"} | variables


def run(
    *words: str,
    timeout: float = 100,
    new_interpreter: bool = False,
    directory: Path | None = None,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run `ftrl` to its end; in a new interpreter where its start is what is tested."""
    place = directory or Path.cwd()
    started = StartedCommand(words, environment(**(PATIENT | variables)), place, new_interpreter)
    try:
        code = started.process.wait(timeout)
        output, errors = started.written()
    finally:
        started.remove()
    return subprocess.CompletedProcess(["ftrl", *words], code, output, errors)


class StartedCommand:
    """`ftrl WORDS` in a session of its own as in a terminal, without input; its output is read at once."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], directory: Path, new_interpreter: bool
    ) -> None:
        pipes = [os.pipe() for _ in range(2)]
        out, err = (writer for _, writer in pipes)
        self.process: subprocess.Popen[bytes] | ForkedProcess
        if new_interpreter:
            self.process = subprocess.Popen(
                [*FTRL, *words],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        else:
            self.process = fork_server().start(words, environment, directory, out, err)
        os.close(out)
        os.close(err)
        self.output: list[str] = []
        self.errors: list[str] = []
        self._streams = [os.fdopen(reader, encoding="utf-8") for reader, _ in pipes]
        # Read to their ends, or the pipes would fill up and stop the process.
        self._readers = [
            threading.Thread(target=lines.extend, args=(stream,), daemon=True)
            for lines, stream in zip((self.output, self.errors), self._streams, strict=True)
        ]
        for reader in self._readers:
            reader.start()

    def written(self, seconds: float = 5) -> tuple[str, str]:
        """All of its output and errors, once it has ended; descendants may still hold the streams."""
        for reader in self._readers:
            reader.join(seconds)
        return "".join(self.output), "".join(self.errors)

    def remove(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream, reader in zip(self._streams, self._readers, strict=True):
            reader.join(1)
            if not reader.is_alive():
                stream.close()


class ServingProcess(StartedCommand):
    """`ftrl serve`, `api`, `learn` or `consume` on any free port."""

    new_interpreter = False

    def __init__(self, *words: str, directory: Path, **variables: str) -> None:
        self._has_only_metrics = words[0] in ("learn", "consume")
        every = environment(**({"FTRL_PORT": "0"} | PATIENT | variables))
        super().__init__(words, every, directory, self.new_interpreter)

    @property
    def log(self) -> str:
        """What it has written so far."""
        return "".join(self.output + self.errors)

    @property
    def url(self) -> str:
        """The address that it announces, once it answers there."""
        announced = "metrics are at" if self._has_only_metrics else "listens on"
        return self.wait_for(rf"(?<={announced} )http://[0-9.]+:\d+", seconds=90)

    def wait_for(self, pattern: str, seconds: float = 60) -> str:
        """The first match in what was written so far to either stream."""
        try:
            found = wait_until(lambda: re.search(pattern, self.log), f"it writes {pattern!r}", seconds)
        except AssertionError as e:
            e.add_note(self.log)
            raise
        return found[0]

    def wait_until_ready(self, seconds: float = 60) -> str:
        """The address, once updates are taken."""
        url = self.url

        def is_ready() -> bool:
            assert self.process.poll() is None, self.log
            return httpx.get(f"{url}/readyz?for=update", timeout=5, verify=False).is_success

        wait_until(is_ready, f"{url} takes updates", seconds)
        return url

    def put(self, path: str, body: object) -> Any:
        return self.post(path, body, "PUT")

    def post(self, path: str, body: object, method: str = "POST") -> Any:
        return (
            httpx.request(method, self.url + path, json=body, timeout=30, verify=False)
            .raise_for_status()
            .json()
        )

    def get(self, path: str) -> Any:
        return httpx.get(self.url + path, timeout=30, verify=False).raise_for_status().json()

    def delete(self, path: str) -> None:
        httpx.delete(self.url + path, timeout=30, verify=False).raise_for_status()

    def metric(self, name: str, **labels: str) -> float:
        """One sample of `/metrics`; 0 where it is not there."""
        wanted = name + ("{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "}" if labels else "")
        for line in self.metrics().splitlines():
            if line.startswith(wanted + " "):
                return float(line.rpartition(" ")[2])
        return 0.0

    def metrics(self) -> str:
        """The text of `/metrics`."""
        # Without `verify=False` httpx would load the certificates of all authorities for every request.
        return httpx.get(f"{self.url}/metrics", timeout=10, verify=False).raise_for_status().text

    def interrupt(self) -> None:
        """Ctrl-C: SIGINT to the whole process group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill9(self) -> None:
        self.process.kill()
        self.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.terminate()
        return self.wait()

    def wait(self, seconds: float = 60) -> int:
        code = self.process.wait(seconds)
        self.written()
        return code


class NewServingProcess(ServingProcess):
    """The same in a new interpreter, for tests of the start itself and of child processes."""

    new_interpreter = True

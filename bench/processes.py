"""Start and stop the processes that are measured. Nothing else in `bench` starts a process."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from redis import Redis
from redis.exceptions import RedisError

from bench.criteo import REPOSITORY
from bench.result import Options

START_SECONDS = 90.0  # the first start on a machine compiles the kernels
STOP_SECONDS = 15.0


class ProcessFailed(Exception):
    """A process ended early, never became ready, or returned an error."""


@contextmanager
def running(
    command: Sequence[str], ready: Callable[[], bool], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `command` until the block ends; the block starts when `ready` returns true."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=REPOSITORY,
            env={**os.environ, **(environment or {})},
        )
        try:
            _wait_until_ready(process, ready, output)
            yield process
        finally:
            _stop(process)


def _wait_until_ready(process: subprocess.Popen[bytes], ready: Callable[[], bool], output: IO[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            output.seek(0)
            text = output.read().decode(errors="replace")[-4000:]
            raise ProcessFailed(f"{process.args!r} did not become ready (status {process.poll()}):\n{text}")
        time.sleep(0.05)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def finish(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """Run `command` to its end and return its standard output."""
    done = subprocess.run(
        command,
        capture_output=True,
        cwd=REPOSITORY,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ProcessFailed(f"{list(command)!r} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return done.stdout


@contextmanager
def beside(command: Sequence[str]) -> Iterator[list[str]]:
    """Run `command`, which ends with its standard input, beside the block; then the list holds its output."""
    output: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY, text=True
    ) as process:
        try:
            yield output
        finally:
            output.append(process.communicate(timeout=STOP_SECONDS)[0])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(url: str) -> bool:
    """Whether a GET of `url` gives 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return bool(reply.status == 200)
    except (OSError, urllib.error.HTTPError):
        return False


def post(url: str, body: object, token: str = "") -> dict[str, Any]:
    """POST `body` as JSON and return the decoded reply; raises ProcessFailed on any status but 2xx."""
    headers = {"content-type": "application/json"}
    if token:
        headers["authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            decoded: dict[str, Any] = json.load(reply)
            return decoded
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        raise ProcessFailed(f"POST {url}: {error.code} {text[:2000]}") from error


class Server(NamedTuple):
    """A running HTTP server: its address, and the process that started it all."""

    url: str
    pid: int


def cpu_seconds(pid: int) -> float:
    """Processor time that a process and its descendants have used; 0 where there is no /proc."""
    directory = Path(f"/proc/{pid}")
    if not directory.exists():
        return 0.0
    user, system = (directory / "stat").read_text().rpartition(")")[2].split()[11:13]
    children = (child for task in directory.glob("task/*/children") for child in task.read_text().split())
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK") + sum(cpu_seconds(int(c)) for c in children)


@contextmanager
def service(**settings: str) -> Iterator[Server]:
    """The service as a user starts it, `ftrl serve`, on a fresh data directory."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="ftrl-bench-") as directory:
        environment = {
            "FTRL_PORT": str(port),
            "FTRL_DATA_DIR": directory,
            "FTRL_APPENDFSYNC": "everysec",
            "FTRL_LOG_LEVEL": "warning",
            "FTRL_MAX_VALUE": "1e9",  # some counts of the Criteo rows are above the default bound
            **settings,
        }
        with running(ftrl("serve"), lambda: answers(f"{url}/readyz?for=update"), environment) as process:
            yield Server(url, process.pid)


@contextmanager
def reference(application: str) -> Iterator[Server]:
    """A reference application in one uvicorn process, with the options of ours."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "uvicorn", application, "--port", str(port)]
    command += [
        "--loop",
        "uvloop",
        "--http",
        "httptools",
        "--ws",
        "none",
        "--no-server-header",
        "--no-proxy-headers",
    ]
    command += ["--no-access-log", "--log-level", "warning"]
    with running(command, lambda: answers(f"{url}/livez")) as process:
        yield Server(url, process.pid)


@contextmanager
def redis_server(executable: str) -> Iterator[str]:
    """A Redis-protocol server with an append-only file, everysec; yields its address."""
    with tempfile.TemporaryDirectory(prefix="ftrl-bench-", dir="/tmp") as directory:  # socket paths are short
        path = f"{directory}/redis.sock"
        url = f"unix://{path}"
        command = [executable, "--port", "0", "--unixsocket", path, "--dir", directory, "--save", ""]
        command += ["--appendonly", "yes", "--appendfsync", "everysec"]
        with running(command, lambda: pings(url)):
            yield url


def pings(url: str) -> bool:
    """Whether a Redis server answers at `url`."""
    try:
        with Redis.from_url(url, socket_timeout=2) as client:
            return bool(client.ping())
    except (RedisError, OSError):
        return False


def ftrl(*arguments: str) -> list[str]:
    """The command line of `ftrl ARGUMENTS`, run by this interpreter."""
    return [sys.executable, "-m", "service", *arguments]


def load(
    url: str,
    bodies: Path,
    options: Options,
    *,
    connections: int,
    expected: str = "",
    occurrences: int = 0,
    token: str = "",
) -> dict[str, float]:
    """Run the load generator in its own process and return what it measured."""
    arguments = {
        "url": url,
        "bodies": bodies,
        "connections": connections,
        "seconds": options.seconds,
        "warm-up": min(1.0, options.seconds / 2),
        "expected": expected,
        "occurrences": occurrences,
        "token": token,
    }
    command = [
        sys.executable,
        "-m",
        "bench.load",
        *(f"--{name}={value}" for name, value in arguments.items()),
    ]
    measured: dict[str, float] = json.loads(finish(command))
    return measured

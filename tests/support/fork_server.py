"""Starting `ftrl` in milliseconds: a process that has imported everything and loaded the kernels forks.

Each fork is a process of its own, in a session of its own, with its own environment, directory and streams:
tests kill, pause and signal it like any other. What a new interpreter does until `main` is not run: tests of
the start itself use a new one.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from model_core.warm_up import warm_up
from service.cli.main import main
from tests.support.shared_data import REPOSITORY

STARTED = b"+"
LENGTH = struct.Struct("<I")
EXIT_CODE = struct.Struct("<i")
DESCRIPTORS = 3
START_SECONDS = 600.0
"""Much longer than loading takes: where the numeric core has changed, its kernels are compiled."""


class ForkedProcess:
    """A running `ftrl`, with the part of subprocess.Popen's interface that tests use."""

    def __init__(self, pid: int, exit_code: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._exit_code = exit_code

    def poll(self) -> int | None:
        return self._result(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative for a signal. Raises subprocess.TimeoutExpired."""
        code = self._result(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("ftrl", timeout or 0.0)
        return code

    def _result(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._exit_code], [], [], timeout)[0]:
            content = os.read(self._exit_code, EXIT_CODE.size)
            os.close(self._exit_code)
            self.returncode = EXIT_CODE.unpack(content)[0] if content else -signal.SIGKILL
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The process that forks. It ends, and its forks with it, when this one ends."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        self._one_at_a_time = threading.Lock()
        with theirs:
            words = (sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno()))
            environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
            self._process = subprocess.Popen(
                words,
                cwd=REPOSITORY,
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._control.settimeout(START_SECONDS)
        assert self._control.recv(1) == STARTED, "the fork server did not start"
        atexit.register(self.close)

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], directory: Path, out: int, err: int
    ) -> ForkedProcess:
        """`ftrl WORDS`, its standard output and errors at these descriptors and no input."""
        reader, writer = os.pipe()
        request = json.dumps([list(words), dict(environment), str(directory)]).encode()
        try:
            with self._one_at_a_time:
                socket.send_fds(self._control, [LENGTH.pack(len(request))], [out, err, writer])
                self._control.sendall(request)
                pid = LENGTH.unpack(_read(self._control, LENGTH.size))[0]
        finally:
            os.close(writer)
        return ForkedProcess(pid, reader)

    def close(self) -> None:
        self._control.close()
        self._process.wait()


@functools.cache
def fork_server() -> ForkServer:
    """That of this test process, started when first needed."""
    return ForkServer()


class Request(NamedTuple):
    words: list[str]
    environment: dict[str, str]
    directory: str
    output: int
    errors: int


def _read(control: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        content += (piece := control.recv(count - len(content)))
        if not piece:
            raise EOFError
    return content


def _serve(control: socket.socket) -> Request | None:
    """Fork for each request. Returns the request in the fork, and None once there are no more."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker)
    running: dict[int, int] = {}
    control.sendall(STARTED)
    while True:
        ready = select.select([control.fileno(), wake], [], [])[0]
        if wake in ready:
            os.read(wake, 4096)
            _report_exits(running)
        if control.fileno() in ready:
            head, descriptors, _, _ = socket.recv_fds(control, LENGTH.size, DESCRIPTORS)
            if not head:
                break
            out, err, exit_code = descriptors
            words, environment, directory = json.loads(_read(control, LENGTH.unpack(head)[0]))
            request = Request(words, environment, directory, out, err)
            if not (pid := os.fork()):
                signal.set_wakeup_fd(-1)
                for descriptor in (wake, waker, exit_code, *running.values()):
                    os.close(descriptor)
                return request
            running[pid] = exit_code
            os.close(out)
            os.close(err)
            control.sendall(LENGTH.pack(pid))
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    return None


def _report_exits(running: dict[int, int]) -> None:
    for pid in list(running):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            exit_code = running.pop(pid)
            with contextlib.suppress(BrokenPipeError):  # the test has ended without waiting for it
                os.write(exit_code, EXIT_CODE.pack(os.waitstatus_to_exitcode(status)))
            os.close(exit_code)


def _become(request: Request) -> None:
    """What a new process of that command line would be, from here to its end."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, descriptor in ((1, request.output), (2, request.errors)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.argv = ["ftrl", *request.words]
    main()


def _load() -> None:
    """Import what any command imports, and load every kernel."""
    warm_up()
    for module in ("service.app", "service.cli.main", "service.api.server.uvicorn_server", "uvloop"):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # or each fork would copy all of it at its first collection


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as control:
        _load()
        request = _serve(control)
    if request is not None:
        _become(request)

"""How a serving process takes signals, and when its port takes connections."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.cli.serve import listen
from service.settings import Settings
from service.storage.embedded import EmbeddedServer
from tests.support.commands import NewServingProcess
from tests.support.servers import ServerProcess
from tests.support.waiting import wait_until

EXAMPLE = {"features": {"ad": "shoes"}, "label": 1}
STOPS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]


@contextlib.contextmanager
def serving(directory: Path, *words: str, **variables: str) -> Iterator[NewServingProcess]:
    process = NewServingProcess("serve", *words, directory=directory, **variables)
    try:
        yield process
    finally:
        process.remove()


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("number", STOPS, ids=lambda number: number.name)
def test_a_terminating_signal_stops_the_service_and_its_server(
    tmp_path: Path, number: signal.Signals, workers: str
) -> None:
    with serving(tmp_path, "--workers", workers) as service:
        service.wait_until_ready()
        server = EmbeddedServer(Settings(data_dir=tmp_path / "data")).pid
        service.process.send_signal(number)
        assert service.wait() == 0
        with pytest.raises(ProcessLookupError):
            os.kill(server, 0)


@pytest.mark.slow
def test_signals_without_a_meaning_change_nothing(tmp_path: Path, fresh_valkey: ServerProcess) -> None:
    with serving(tmp_path, FTRL_REDIS_URL=fresh_valkey.url) as service:
        service.wait_until_ready()
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            service.process.send_signal(number)
        assert service.post("/update", EXAMPLE)["status"] == "learned"
        assert service.stop() == 0


@pytest.mark.slow
def test_idle_connections_leave_open_files_for_predictions(
    tmp_path: Path, fresh_valkey: ServerProcess
) -> None:
    with serving(tmp_path, FTRL_REDIS_URL=fresh_valkey.url) as service:
        pid = int(service.process.pid)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (64, 64))
        host, port = service.wait_until_ready().removeprefix("http://").split(":")
        with contextlib.ExitStack() as stack:
            for _ in range(200):
                stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            wait_until(lambda: service.post("/predict", {"features": {}})["probability"])
            assert service.post("/update", EXAMPLE)["status"] == "learned"
        assert service.stop() == 0


def connects(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_port_refuses_connections_until_its_server_answers() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert not connects("127.0.0.1", port)
        listener.listen()
        assert connects("127.0.0.1", port)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize(("host", "both"), [("::", True), ("::1", False)])
def test_the_unspecified_address_of_ipv6_is_that_of_ipv4_too(host: str, both: bool) -> None:
    with listen(host, 0) as listener:
        listener.listen()
        assert connects("::1", listener.getsockname()[1])
        assert connects("127.0.0.1", listener.getsockname()[1]) is both


@pytest.mark.slow
def test_a_port_that_is_taken_during_the_start_is_named(tmp_path: Path, fresh_valkey: ServerProcess) -> None:
    with listen("127.0.0.1", 0) as thief:
        port = thief.getsockname()[1]
        fresh_valkey.pause()
        words = ("--port", str(port), "--redis-timeout-seconds", "600", "--lease-seconds", "2000")
        with serving(tmp_path, *words, FTRL_REDIS_URL=fresh_valkey.url) as service:
            wait_until(lambda: bound_sockets(service.process.pid) > 0, "the service has bound its port")
            thief.listen()
            fresh_valkey.resume()
            assert service.wait() == 1
            assert "cannot listen" in service.log
            assert "Traceback" not in service.log


def bound_sockets(pid: int) -> int:
    """The number of sockets among the open files of a process."""
    return sum(str(file.readlink()).startswith("socket:") for file in Path(f"/proc/{pid}/fd").iterdir())

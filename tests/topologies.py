"""Redis as companies run it, on this machine: a primary with Sentinels, a cluster."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import redis
from redis.crc import key_slot

from service.redis_keys import meta_key
from tests.servers import ServerProcess, executable_of, free_port

SLOTS = 16384
NODE_TIMEOUT_MS = 800
SENTINELS = 3


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not _holds(condition):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except (redis.RedisError, OSError):
        return False


class ClusterOfServers:
    """Some masters with a replica each; `pairs` are those of the start. Has the `url` of a ServerProcess."""

    def __init__(self, masters: int = 3, **config: Any) -> None:
        options: dict[str, Any] = {
            "cluster_enabled": "yes",
            "cluster_node_timeout": NODE_TIMEOUT_MS,
            **config,
        }
        self.pairs = [
            (ServerProcess(port=free_port(), **options), ServerProcess(port=free_port(), **options))
            for _ in range(masters)
        ]

    @property
    def servers(self) -> list[ServerProcess]:
        return [server for pair in self.pairs for server in pair]

    @property
    def url(self) -> str:
        """Of a part of them: the others have to be found."""
        named = self.pairs[0] + self.pairs[-1]
        return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in named)

    def start(self) -> ClusterOfServers:
        for server in self.servers:
            server.start()
        first = self.servers[0]
        share = SLOTS // len(self.pairs) + 1
        for number, (master, _) in enumerate(self.pairs):
            last = min((number + 1) * share, SLOTS) - 1
            self.order(master, "CLUSTER", "ADDSLOTSRANGE", number * share, last)
            self.order(master, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for server in self.servers[1:]:
            self.order(server, "CLUSTER", "MEET", "127.0.0.1", first.port)
        for master, replica in self.pairs:
            wait_until(lambda r=replica, m=master: self._replicates(r, m), "a replica joins")  # type: ignore[misc]
        wait_until(self._agreed, "the cluster is up")
        return self

    def order(self, server: ServerProcess, *command: str | int) -> object:
        with server.client() as client:
            return client.execute_command(*command)

    def pair_of(self, model: str) -> tuple[ServerProcess, ServerProcess]:
        """The master of the start that has the model, and its replica."""
        return self.pairs[key_slot(meta_key(model).encode()) // (SLOTS // len(self.pairs) + 1)]

    def _replicates(self, replica: ServerProcess, master: ServerProcess) -> bool:
        self.order(replica, "CLUSTER", "REPLICATE", self.id_of(master))
        return True

    def id_of(self, server: ServerProcess) -> str:
        told = self.order(server, "CLUSTER", "MYID")
        return told.decode() if isinstance(told, bytes) else str(told)

    def _agreed(self) -> bool:
        return all(self._sees_everyone(server) for server in self.servers)

    def _sees_everyone(self, server: ServerProcess) -> bool:
        with server.client() as client:
            info = client.execute_command("CLUSTER INFO")
            slots = client.execute_command("CLUSTER SLOTS")
            link_up = client.info("replication").get("master_link_status", "up") == "up"
        complete = len(slots) == len(self.pairs) and all(len(entry) == 4 for entry in _entries(slots))
        return link_up and complete and b"cluster_state:ok" in _bytes(info)

    def remove(self) -> None:
        for server in self.servers:
            server.remove()


def _bytes(info: object) -> bytes:
    if isinstance(info, dict):
        return "\n".join(f"{key}:{value}" for key, value in info.items()).encode()
    assert isinstance(info, bytes)
    return info


def _entries(slots: object) -> list[list[object]]:
    if isinstance(slots, dict):  # as redis-py reads it: one primary and its replicas a range
        return [[0, 0, entry["primary"], *entry["replicas"]] for entry in slots.values()]
    assert isinstance(slots, list)
    return slots


class SentinelsOfServers:
    """A master and its replica, watched by three Sentinels under the name `clicks`."""

    def __init__(self, **config: Any) -> None:
        self.primary = ServerProcess(port=free_port(), **config)
        self.replica = ServerProcess(port=free_port(), replicaof=f"127.0.0.1 {self.primary.port}", **config)
        self.ports = [free_port() for _ in range(SENTINELS)]
        self._sentinels: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in self.ports)}/clicks"

    def start(self) -> SentinelsOfServers:
        self.primary.start()
        self.replica.start()
        self._sentinels = [self._sentinel(port) for port in self.ports]
        for port in self.ports:
            wait_until(lambda p=port: self._knows_all(p), "the Sentinels know each other")  # type: ignore[misc]
        return self

    def _sentinel(self, port: int) -> subprocess.Popen[bytes]:
        file = self.primary.directory / f"sentinel-{port}.conf"
        file.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {self.primary.directory}\n"
            f"sentinel monitor clicks 127.0.0.1 {self.primary.port} 2\n"
            f"sentinel down-after-milliseconds clicks {NODE_TIMEOUT_MS}\n"
            "sentinel failover-timeout clicks 3000\n"
        )
        return subprocess.Popen(
            [executable_of("valkey"), str(file), "--sentinel"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _knows_all(self, port: int) -> bool:
        with redis.Redis(port=port, socket_timeout=1) as client:
            state = client.sentinel_master("clicks")
        return bool(state["num-other-sentinels"] == SENTINELS - 1 and state["num-slaves"] == 1)

    def kill_sentinel(self) -> None:
        """The first, which everyone asks first."""
        self._sentinels[0].kill()

    def remove(self) -> None:
        for sentinel in self._sentinels:
            sentinel.kill()
            sentinel.wait()
        self.primary.remove()
        self.replica.remove()


@contextlib.contextmanager
def cluster(masters: int = 3, **config: Any) -> Iterator[ClusterOfServers]:
    made = ClusterOfServers(masters, **config)
    try:
        yield made.start()
    finally:
        made.remove()


@contextlib.contextmanager
def sentinels(**config: Any) -> Iterator[SentinelsOfServers]:
    made = SentinelsOfServers(**config)
    try:
        yield made.start()
    finally:
        made.remove()

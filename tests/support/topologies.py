"""Redis as companies run it, on this machine: a primary with Sentinels, a cluster."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from typing import Any

import redis
from redis.crc import key_slot

from service.storage.records import meta_key
from tests.support.certificates import Certificates
from tests.support.servers import ServerProcess, executable_of, free_port
from tests.support.waiting import wait_until

SLOTS = 16384
NODE_TIMEOUT_MS = 800
PATIENT_MS = 3000  # while a cluster forms: a node slower than the node time-out to shake hands is forgotten
SENTINELS = 3


def port_of(server: ServerProcess) -> int:
    """Where clients find it, with TLS or without."""
    return server.port or int(str(server.config["tls-port"]))


def _server(tls: Certificates | None, config: dict[str, Any]) -> ServerProcess:
    """With `tls`, ports require a client certificate; the test itself uses the unix socket."""
    if tls is None:
        return ServerProcess(port=free_port(), **config)
    own = {"tls_port": free_port(), "tls_replication": "yes", **tls.of_server}
    return ServerProcess(kind="redis", **{**own, **config})


def _node(tls: Certificates | None, config: dict[str, Any]) -> ServerProcess:
    """Of a cluster. Its own port of the bus: by default that is 10,000 higher, where there may be none."""
    options = {
        "cluster_enabled": "yes",
        "cluster_node_timeout": PATIENT_MS,
        "cluster_port": free_port(),
        **({"tls_cluster": "yes"} if tls else {}),
    }
    return _server(tls, {**options, **config})


def _scheme(deployment: ClusterOfServers | SentinelsOfServers) -> str:
    return "rediss" if deployment.settings else "redis"


class ClusterOfServers:
    """Some masters with a replica each; `pairs` are those of the start. Has the `url` of a ServerProcess."""

    def __init__(self, masters: int = 3, tls: Certificates | None = None, **config: Any) -> None:
        self.settings = tls.settings if tls else {}
        self.pairs = [(_node(tls, config), _node(tls, config)) for _ in range(masters)]

    @property
    def servers(self) -> list[ServerProcess]:
        return [server for pair in self.pairs for server in pair]

    @property
    def url(self) -> str:
        """Of a part of them: the others have to be found."""
        named = self.pairs[0] + self.pairs[-1]
        return f"{_scheme(self)}+cluster://" + ",".join(f"127.0.0.1:{port_of(server)}" for server in named)

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
            bus = str(first.config["cluster-port"])
            self.order(server, "CLUSTER", "MEET", "127.0.0.1", port_of(first), bus)
        for master, replica in self.pairs:
            wait_until(lambda r=replica, m=master: self._replicates(r, m), "a replica joins")  # type: ignore[misc]
        wait_until(self._agreed, "the cluster is up")
        for server in self.servers:
            server.config["cluster-node-timeout"] = NODE_TIMEOUT_MS
            self.order(server, "CONFIG", "SET", "cluster-node-timeout", NODE_TIMEOUT_MS)
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
        node = self.order(server, "CLUSTER", "MYID")
        return node.decode() if isinstance(node, bytes) else str(node)

    def _agreed(self) -> bool:
        return all(self._sees_all(server) for server in self.servers)

    def _sees_all(self, server: ServerProcess) -> bool:
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

    def __init__(self, tls: Certificates | None = None, **config: Any) -> None:
        self.settings = tls.settings if tls else {}
        self._tls = tls
        self.primary = _server(tls, config)
        self.replica = _server(tls, {"replicaof": f"127.0.0.1 {port_of(self.primary)}", **config})
        self.ports = [free_port() for _ in range(SENTINELS)]
        self._sentinels: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return f"{_scheme(self)}+sentinel://{','.join(f'127.0.0.1:{port}' for port in self.ports)}/clicks"

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
            f"bind 127.0.0.1\ndir {self.primary.directory}\n{self._listening(port)}"
            f"sentinel monitor clicks 127.0.0.1 {port_of(self.primary)} 2\n"
            f"sentinel down-after-milliseconds clicks {NODE_TIMEOUT_MS}\n"
            "sentinel failover-timeout clicks 3000\n"
        )
        return subprocess.Popen(
            [executable_of(self.primary.kind), str(file), "--sentinel"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _listening(self, port: int) -> str:
        if self._tls is None:
            return f"port {port}\n"
        own = {"port": 0, "tls_port": port, "tls_replication": "yes", **self._tls.of_server}
        return "".join(f"{name.replace('_', '-')} {value}\n" for name, value in own.items())

    def _knows_all(self, port: int) -> bool:
        own: dict[str, Any] = self._tls.of_client if self._tls else {}
        with redis.Redis("127.0.0.1", port, socket_timeout=1, **own) as client:
            state = client.sentinel_master("clicks")
        return bool(state["num-other-sentinels"] == SENTINELS - 1 and state["num-slaves"] == 1)

    def kill_sentinel(self) -> None:
        """The first, which clients ask first."""
        self._sentinels[0].kill()

    def remove(self) -> None:
        for sentinel in self._sentinels:
            sentinel.kill()
            sentinel.wait()
        self.primary.remove()
        self.replica.remove()


@contextlib.contextmanager
def cluster(masters: int = 3, tls: Certificates | None = None, **config: Any) -> Iterator[ClusterOfServers]:
    made = ClusterOfServers(masters, tls, **config)
    try:
        yield made.start()
    finally:
        made.remove()


@contextlib.contextmanager
def sentinels(tls: Certificates | None = None, **config: Any) -> Iterator[SentinelsOfServers]:
    made = SentinelsOfServers(tls, **config)
    try:
        yield made.start()
    finally:
        made.remove()

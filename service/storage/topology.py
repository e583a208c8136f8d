"""Where the connections of one Redis lead: to one server, to the master that Sentinels name, into a cluster.

`Channel` opens its connections here. A pool only in name: nobody shares connections.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, NamedTuple

from redis.asyncio.connection import AbstractConnection, ConnectionPool, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import AskError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError

from service.settings import RedisAddress, Settings


class Node(NamedTuple):
    """One server of several."""

    host: str
    port: int


class Servers(ConnectionPool):
    """One server, whose address may lead elsewhere tomorrow (DNS)."""

    async def open(self, node: Node | None = None) -> AbstractConnection:
        """A new connection to `node`, by default to a server that takes writes or knows who does.

        Raises RedisError, OSError.
        """
        return await self._opened(node)

    async def masters(self) -> list[Node | None]:
        """All servers that together hold all keys. Raises RedisError, OSError."""
        return [None]

    def avoid(self, connection: AbstractConnection) -> None:
        """It failed: where there is a choice, the next one is to lead elsewhere."""

    async def _opened(self, node: Node | None) -> AbstractConnection:
        place = {} if node is None else {"host": node.host, "port": node.port}
        connection: AbstractConnection = self.connection_class(**{**self.connection_kwargs, **place})
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException:  # also when cancelled half way
            await connection.disconnect(nowait=True)
            raise
        return connection


class SentinelServers(Servers):
    """The master that the Sentinels name, asked anew for each connection."""

    def __init__(self, sentinel: Sentinel, service: str, **options: Any) -> None:
        super().__init__(**options)
        self._sentinel = sentinel
        self._service = service
        self._asking: asyncio.Task[tuple[str, int]] | None = None

    async def open(self, node: Node | None = None) -> AbstractConnection:
        return await self._opened(node or Node(*await self._master()))

    async def _master(self) -> tuple[str, int]:
        """One question serves everyone who asks meanwhile."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._sentinel.discover_master(self._service))
            self._asking.add_done_callback(_seen)
        return await asyncio.shield(self._asking)

    async def aclose(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        await self._sentinel.aclose()
        await super().aclose()


class ClusterServers(Servers):
    """Any node of a cluster: it answers for its own keys, and says who has the others (MOVED)."""

    def __init__(self, nodes: list[Node], **options: Any) -> None:
        super().__init__(**options)
        self._known = deque(nodes)  # whoever did not answer goes to the end

    async def open(self, node: Node | None = None) -> AbstractConnection:
        if node is not None:
            return await self._opened(node)
        failure: Exception = RedisConnectionError("no node of the cluster is known")
        for candidate in list(self._known):
            try:
                return await self._opened(candidate)
            except (RedisError, OSError) as refused:
                failure = refused
                self._put_last(candidate)
            except asyncio.CancelledError:  # out of time
                self._put_last(candidate)
                raise
        raise failure

    def avoid(self, connection: AbstractConnection) -> None:
        self._put_last(_node_of(connection))

    async def masters(self) -> list[Node | None]:
        """Also makes sure that all nodes are known, should those of the URL go away."""
        connection = await self.open()
        try:
            await connection.send_command("CLUSTER", "SLOTS")
            ranges: list[Any] = await connection.read_response()
        finally:
            await connection.disconnect(nowait=True)
        nodes = [[_node(entry, connection) for entry in served[2:]] for served in ranges]
        if not nodes:
            raise RedisConnectionError("the cluster serves no slots yet")
        known = dict.fromkeys(node for group in nodes for node in group)
        self._known = deque([*(node for node in self._known if node in known), *(known.keys() - self._known)])
        return list(dict.fromkeys(group[0] for group in nodes))

    def _put_last(self, node: Node) -> None:
        if node in self._known:
            self._known.remove(node)
            self._known.append(node)


def node_named_by(redirection: AskError, connection: AbstractConnection) -> Node:
    """Where a MOVED or an ASK leads."""
    return Node(redirection.host or _node_of(connection).host, redirection.port)


def _node(entry: list[Any], connection: AbstractConnection) -> Node:
    """Of a reply of CLUSTER SLOTS; an empty host means the one that answered."""
    return Node((entry[0] or b"").decode() or _node_of(connection).host, int(entry[1]))


def _node_of(connection: AbstractConnection) -> Node:
    return Node(connection.host, connection.port)  # type: ignore[attr-defined]  # a cluster is on TCP


def _seen(task: asyncio.Task[Any]) -> None:
    """Its failure is for those who still wait, if anybody does."""
    if not task.cancelled():
        task.exception()


def servers_of(settings: Settings, url: str) -> Servers:
    address = RedisAddress.parse(url)
    options = _options(settings, address)
    if address.mode == "server":
        return Servers(**options)
    del options["host"], options["port"]
    if address.mode == "cluster":
        return ClusterServers([Node(*host) for host in address.hosts], **options)
    return SentinelServers(_sentinel(settings, address, options), address.service, **options)


def _options(settings: Settings, address: RedisAddress) -> dict[str, Any]:
    """Nothing is retried here; see `ExampleLog` for why. What the URL says wins."""
    password = settings.redis_password
    own = {
        "username": settings.redis_username,
        "password": password.get_secret_value() if password else None,
    }
    of_url: dict[str, Any] = dict(parse_url(address.url))
    return {
        "socket_connect_timeout": settings.redis_timeout_seconds,
        "socket_timeout": None,  # Channel keeps the time: asyncio.wait_for, behind this, loses cancellations
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "driver_info": None,  # it would only tell the server which library this is
        **own,
        **(
            _certificates(settings)
            if issubclass(of_url.get("connection_class", object), SSLConnection)
            else {}
        ),
        **of_url,
    }


def _certificates(settings: Settings) -> dict[str, str]:
    paths = {
        "ssl_ca_certs": settings.redis_ca_cert,
        "ssl_certfile": settings.redis_client_cert,
        "ssl_keyfile": settings.redis_client_key,
    }
    return {name: str(path) for name, path in paths.items() if path is not None}


def _sentinel(settings: Settings, address: RedisAddress, options: dict[str, Any]) -> Sentinel:
    """Each Sentinel is given a part of the time that connecting may take, so that one may be away."""
    seconds = settings.redis_timeout_seconds / 3
    password = settings.redis_sentinel_password
    own: dict[str, Any] = {
        "socket_connect_timeout": seconds,
        "socket_timeout": seconds,
        "username": settings.redis_sentinel_username,
        "password": password.get_secret_value() if password else None,
        "ssl": issubclass(options.get("connection_class", object), SSLConnection),
        **{name: options[name] for name in ("retry", "protocol", "driver_info")},
        **{name: value for name, value in options.items() if name.startswith("ssl_")},
    }
    return Sentinel(address.hosts, sentinel_kwargs=own)  # type: ignore[no-untyped-call]

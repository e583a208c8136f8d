"""Destinations of the connections to one Redis: one server, the master that Sentinels name, or a cluster.

redis-py opens each connection and logs in; its pools are not used, since a `Channel` has a connection of its
own or shares one without waiting for it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    RedisSSLContext,
    SSLConnection,
    parse_url,
)
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import AskError, InvalidResponse, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from service.runtime.tasks import retrieve_exception
from service.settings.groups import RedisSettings
from service.settings.redis_address import RedisAddress
from service.storage.errors import ConnectionLimit


class Node(NamedTuple):
    """One server of several."""

    host: str
    port: int


class Closable(Protocol):
    async def close(self) -> None: ...


Belonging = TypeVar("Belonging", bound=Closable)


class Clock(Protocol):
    def milliseconds(self) -> int:
        """Returns the time since 1970."""


class Topology:
    """A single server, looked up by name (DNS) for each connection; the base of the other kinds.

    `options` are those of redis-py's connection. `one_slot_a_call`: the keys of a command must be of one
    model.
    """

    one_slot_a_call = False

    def __init__(self, connection_class: type[AbstractConnection] = Connection, **options: Any) -> None:
        self.clock: Clock | None = None
        """In place of that of this process."""
        self._connection_class = connection_class
        self._options = options
        self._tls: tuple[list[object], RedisSSLContext] | None = None
        self.limit = ConnectionLimit()
        self._belongings: dict[Callable[[Topology], Any], Any] = {}

    def only(self, kind: Callable[[Topology], Belonging]) -> Belonging:
        """The one object of that kind which all that use this topology share; closed with it."""
        if kind not in self._belongings:
            self._belongings[kind] = kind(self)
        belonging: Belonging = self._belongings[kind]
        return belonging

    @property
    def timeout(self) -> float:
        """The seconds that opening a connection may take, and the answer to a command."""
        seconds: float = self._options["socket_connect_timeout"]
        return seconds

    async def open(self, node: Node | None = None) -> AbstractConnection:
        """Opens a connection to `node`, by default to a server that accepts writes or redirects to one.

        Raises RedisError, OSError.
        """
        return await self._connect(node)

    async def masters(self) -> list[Node | None]:
        """Lists the servers that together hold all keys; None: the only one.

        Raises what `Channel.call` raises.
        """
        try:
            async with asyncio.timeout(self.timeout):
                return await self._find_masters()
        except TimeoutError as failure:
            raise RedisTimeoutError(str(failure) or f"no answer within {self.timeout:g} s") from failure
        except InvalidResponse as failure:  # the same as in Wire
            raise RedisConnectionError(f"no reply in the protocol of Redis: {failure}") from failure

    def avoid(self, connection: AbstractConnection) -> None:
        """Prefers other servers for the next connection, after this one has failed."""

    async def close(self) -> None:
        """Closes what its users share; other channels are closed by their owners."""
        while self._belongings:
            await self._belongings.popitem()[1].close()

    async def _find_masters(self) -> list[Node | None]:
        return [None]

    async def _connect(self, node: Node | None) -> AbstractConnection:
        place = {} if node is None else {"host": node.host, "port": node.port}
        connection = self._connection_class(**{**self._options, **place})
        if isinstance(connection, SSLConnection):
            connection.ssl_context = self._shared(connection.ssl_context)
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException:  # also when cancelled half way
            await connection.disconnect(nowait=True)
            raise
        return connection

    def _shared(self, context: RedisSSLContext) -> RedisSSLContext:
        """Returns the context of the connection before, unless one of its files has changed since, or it is
        made of a directory, whose files may.

        A new one reads every authority that the system trusts, for which the event loop stands still.
        """
        versions = _versions_of_files(context)
        if self._tls is None or self._tls[0] != versions or context.ca_path:
            self._tls = (versions, context)
        return self._tls[1]


class SentinelTopology(Topology):
    """The master that the Sentinels name, looked up for each connection."""

    def __init__(self, sentinel: Sentinel, service: str, **options: Any) -> None:
        super().__init__(**options)
        self._sentinel = sentinel
        self._service = service
        self._discovery: asyncio.Task[tuple[str, int]] | None = None

    async def open(self, node: Node | None = None) -> AbstractConnection:
        return await self._connect(node or Node(*await self._master()))

    async def _master(self) -> tuple[str, int]:
        """Callers that come while a discovery runs share its result."""
        if self._discovery is None or self._discovery.done():
            self._discovery = asyncio.create_task(
                self._sentinel.discover_master(self._service), name="discovery of the master"
            )
            self._discovery.add_done_callback(retrieve_exception)
        return await asyncio.shield(self._discovery)

    async def close(self) -> None:
        if self._discovery is not None:
            self._discovery.cancel()
            await asyncio.gather(self._discovery, return_exceptions=True)
        await super().close()
        await self._sentinel.aclose()


class ClusterTopology(Topology):
    """Any node of a cluster: it answers for its own keys, and redirects (MOVED) for the others."""

    one_slot_a_call = True

    def __init__(self, nodes: list[Node], **options: Any) -> None:
        super().__init__(**options)
        self._known = deque(nodes)  # a node that did not answer moves to the end

    async def open(self, node: Node | None = None) -> AbstractConnection:
        if node is not None:
            return await self._connect(node)
        failure: Exception = RedisConnectionError("no node of the cluster is known")
        for candidate in list(self._known):
            try:
                return await self._connect(candidate)
            except (RedisError, OSError) as refused:
                failure = refused
                self._put_last(candidate)
            except asyncio.CancelledError:  # out of time
                self._put_last(candidate)
                raise
        raise failure

    def avoid(self, connection: AbstractConnection) -> None:
        self._put_last(_node_of(connection))

    async def _find_masters(self) -> list[Node | None]:
        """Also learns all nodes, so that those of the URL may go away."""
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


def redirection_target(redirection: AskError, connection: AbstractConnection) -> Node:
    """The node that a MOVED or an ASK names."""
    return Node(redirection.host or _node_of(connection).host, redirection.port)


def _node(entry: list[Any], connection: AbstractConnection) -> Node:
    """Decodes a node in a reply of CLUSTER SLOTS; an empty host means the node that answered."""
    return Node((entry[0] or b"").decode() or _node_of(connection).host, int(entry[1]))


def _node_of(connection: AbstractConnection) -> Node:
    return Node(connection.host, connection.port)  # type: ignore[attr-defined]  # a cluster is on TCP


def connect(settings: RedisSettings, url: str) -> Topology:
    """Describes the Redis at `url`. Opens nothing: each `Channel` does when it is first used."""
    address = RedisAddress.parse(url)
    options = _options(settings, address)
    if address.mode == "server":
        return Topology(**options)
    del options["host"], options["port"]
    if address.mode == "cluster":
        return ClusterTopology([Node(*host) for host in address.hosts], **options)
    return SentinelTopology(_sentinel(settings, address, options), address.service, **options)


def _options(settings: RedisSettings, address: RedisAddress) -> dict[str, Any]:
    """Collects the options of a connection; those in the URL win. Nothing is retried here: see ExampleLog."""
    password = settings.redis_password
    of_url: dict[str, Any] = dict(parse_url(address.url))
    of_url.pop("max_connections", None)  # of a pool, which there is not
    return {
        "socket_connect_timeout": settings.redis_timeout_seconds,
        "socket_timeout": None,  # Channel keeps the time: asyncio.wait_for, behind this, loses cancellations
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "driver_info": None,  # spares the commands that would name this library to the server
        "username": settings.redis_username,
        "password": password.get_secret_value() if password else None,
        **(
            _certificates(settings)
            if issubclass(of_url.get("connection_class", object), SSLConnection)
            else {}
        ),
        **of_url,
    }


def _certificates(settings: RedisSettings) -> dict[str, str]:
    paths = {
        "ssl_ca_certs": settings.redis_ca_cert,
        "ssl_certfile": settings.redis_client_cert,
        "ssl_keyfile": settings.redis_client_key,
    }
    return {name: str(path) for name, path in paths.items() if path is not None}


def _versions_of_files(context: RedisSSLContext) -> list[object]:
    """Returns what changes with any file that the context is made of, but those of its own directory; None
    for one that is not there.
    """
    system = ssl.get_default_verify_paths()
    own = (context.ca_certs, context.certfile, context.keyfile)
    versions: list[object] = []
    for path in (*own, system.cafile, system.capath):
        try:
            found = Path(path).stat() if path else None
        except OSError:
            found = None
        versions.append(found and (found.st_ino, found.st_size, found.st_mtime_ns))
    return versions


def _sentinel(settings: RedisSettings, address: RedisAddress, options: dict[str, Any]) -> Sentinel:
    """Gives each Sentinel a part of the time that connecting may take, so that one may be away."""
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

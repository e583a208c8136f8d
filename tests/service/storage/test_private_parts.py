"""The private parts of redis-py that `Wire` relies on, by name."""

from __future__ import annotations

import asyncio

from redis.exceptions import MovedError

from service.settings import Settings
from service.storage.topology import connect
from tests.support.servers import ServerProcess


async def test_an_open_connection_of_redis_py_has_streams_and_a_parser(valkey: ServerProcess) -> None:
    connection = await connect(Settings(), valkey.url).open()
    try:
        reader, writer, parser = connection._reader, connection._writer, connection._parser
        assert isinstance(reader, asyncio.StreamReader)
        assert isinstance(writer, asyncio.StreamWriter)
        assert isinstance(writer.transport, asyncio.Transport)
        moved = parser.parse_error("MOVED 7 127.0.0.1:7001")
        assert isinstance(moved, MovedError)
        assert (moved.host, moved.port) == ("127.0.0.1", 7001)
    finally:
        await connection.disconnect(nowait=True)

"""One command and its reply at a time, over a connection to Redis that redis-py has opened and logged in.

It takes over the socket. redis-py's own exchange, by streams, takes twice the processor time.
"""

from __future__ import annotations

import asyncio
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse
from redis.exceptions import TimeoutError as RedisTimeoutError

_MORE = object()  # what has come of a reply is not all of it


class Wire(asyncio.Protocol):
    """Exchanges must not overlap. After a failure, or an exchange that was cancelled, nothing but `close` is
    of use: a reply that is still on its way would answer the next command.
    """

    def __init__(self, connection: AbstractConnection) -> None:
        # redis-py has no public way to the socket and to the exception that belongs to an error reply.
        reader, writer, parser = connection._reader, connection._writer, connection._parser  # noqa: SLF001
        assert reader is not None, "the connection is open"
        assert writer is not None, "the connection is open"
        self.connection = connection
        self._loop = asyncio.get_running_loop()
        self._transport = writer.transport
        # Of an end that came with the last reply to redis-py, nobody is told a second time.
        self.is_open = not reader.at_eof() and not self._transport.is_closing()
        self._replies = hiredis.Reader(
            protocolError=InvalidResponse, replyError=parser.parse_error, notEnoughData=_MORE
        )
        self._answered: asyncio.Future[Any] | None = None
        self._transport.set_protocol(self)

    async def exchange(self, packed: bytes, seconds: float) -> Any:
        """The reply to a packed command. Raises what an error reply stands for, RedisConnectionError, and
        RedisTimeoutError where it takes longer than that.
        """
        assert self._answered is None or self._answered.done(), "exchanges do not overlap"
        answered = self._answered = self._loop.create_future()
        late = self._loop.call_later(seconds, self._give_up, seconds)
        self._transport.write(packed)
        try:
            reply = await answered
        finally:
            late.cancel()
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def close(self) -> None:
        """What has not been sent by now never is."""
        self.is_open = False
        self._transport.abort()
        await self.connection.disconnect(nowait=True)
        await asyncio.sleep(0)  # the socket is closed on the loop's next turn

    def data_received(self, data: bytes) -> None:
        try:
            self._replies.feed(data)
            reply = self._replies.gets()
        except InvalidResponse as failure:
            self._end(RedisConnectionError(f"no reply in the protocol of Redis: {failure}"))
            return
        if reply is not _MORE and self._answered is not None and not self._answered.done():
            self._answered.set_result(reply)

    def connection_lost(self, failure: Exception | None) -> None:
        self._end(RedisConnectionError(f"the connection ended: {failure or 'closed by the server'}"))

    def _give_up(self, seconds: float) -> None:
        self._end(RedisTimeoutError(f"no answer within {seconds:g} s"))

    def _end(self, failure: Exception) -> None:
        self.is_open = False
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(failure)

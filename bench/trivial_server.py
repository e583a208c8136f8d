"""The least a server can do: `python -m bench.trivial_server PORT` answers everything with one constant.

The load generator's requests a second against it are the generator's own ceiling.
"""

import asyncio
import sys
from typing import cast

import uvloop

BODY = b'{"probability":0.031415926535897934,"model":"default","revision":"0123abcd-1-123456-0123abcd"}'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
REPLY = HEAD % len(BODY) + BODY


class Constant(asyncio.Protocol):
    """Takes each arriving piece for a whole request: true of the generator's small requests."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:  # noqa: ARG002
        self.transport.write(REPLY)


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Constant, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))

"""A client that sends lines of a streamed update and reads its answers on one connection, as it likes."""

from __future__ import annotations

import json
import socket
from typing import Any, Self
from urllib.parse import urlsplit

NDJSON = "application/x-ndjson"


def stream_example(i: int, label: object = 0, **fields: object) -> bytes:
    """A line; example i has the same features whenever it is made."""
    return (
        json.dumps({"features": {"ad": f"a{i}", "hour": i % 24}, "label": label, **fields}).encode() + b"\n"
    )


class Duplex:
    """An open stream to the service at `url`."""

    def __init__(self, url: str, path: str, receive_buffer: int = 0, **headers: str) -> None:
        """receive_buffer: the bytes that may have arrived and not been read; 0 is as the system has it."""
        address = urlsplit(url)
        self._connection = socket.socket()
        self._connection.settimeout(60)
        if receive_buffer:
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._connection.connect((address.hostname, address.port))
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n"
        given = {"content-type": NDJSON, **headers}
        head += "".join(f"{name}: {value}\r\n" for name, value in given.items())
        self._connection.sendall(head.encode() + b"\r\n")
        self._reply = self._connection.makefile("rb")
        self._pending: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self) -> int:
        """Read the head of the reply; the status."""
        status = int(self._reply.readline().split()[1])
        while self._reply.readline().strip():
            pass
        return status

    def send(self, text: bytes) -> None:
        self._connection.sendall(b"%x\r\n%b\r\n" % (len(text), text))

    def end(self) -> None:
        self._connection.sendall(b"0\r\n\r\n")

    def line(self) -> dict[str, Any]:
        """The next line of the reply, which the service sends as one chunk or a part of one."""
        while not self._pending:
            size = int(self._reply.readline(), 16)
            assert size, "the reply has ended"
            self._pending = self._reply.read(size).splitlines()
            self._reply.readline()
        document: dict[str, Any] = json.loads(self._pending.pop(0))
        return document

    def close(self) -> None:
        self._reply.close()
        self._connection.close()

"""The append-only file of a server that a test takes back in time."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from tests.support.servers import ServerProcess

DIRECTORY = "appendonlydir"


def copy_aof(server: ServerProcess, target: Path) -> Path:
    """As a backup is taken: while the server runs."""
    return Path(shutil.copytree(server.directory / DIRECTORY, target / DIRECTORY))


async def roll_back(server: ServerProcess, older: Path) -> None:
    """Ends the server and starts it with the file of a `copy_aof`."""
    server.kill9()
    shutil.rmtree(server.directory / DIRECTORY)
    shutil.copytree(older, server.directory / DIRECTORY)
    await asyncio.to_thread(server.start)


async def lose_the_end(server: ServerProcess, size: int) -> None:
    """Ends the server and starts it without the last `size` bytes of what it wrote since its start."""
    server.kill9()
    (last,) = (server.directory / DIRECTORY).glob("*.incr.aof")
    with last.open("r+b") as file:
        file.truncate(max(0, last.stat().st_size - size))
    await asyncio.to_thread(server.start)


async def cut_after_last(server: ServerProcess, command: bytes) -> None:
    """Ends the server and starts it with a file cut in the middle of what follows the last `command`."""
    server.kill9()
    (last,) = (server.directory / DIRECTORY).glob("*.incr.aof")
    written = last.read_bytes()
    following = written.index(b"\r\n*", written.rindex(b"\r\n" + command + b"\r\n"))
    last.write_bytes(written[: following + 8])
    await asyncio.to_thread(server.start)

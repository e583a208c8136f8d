"""A model whose learners all believe that they lead."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from service.storage.records import lease_key
from tests.support.servers import ServerProcess


@contextlib.asynccontextmanager
async def without_a_lease(server: ServerProcess, model: str) -> AsyncIterator[None]:
    """The key is deleted all the time, so that any learner that asks for the lease gets it."""

    async def delete() -> None:
        with server.client() as client:
            while True:
                client.delete(lease_key(model))
                await asyncio.sleep(0.005)

    task = asyncio.create_task(delete())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

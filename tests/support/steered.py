"""Service processes whose network a test steers; they serve many tests, each with a model of its own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.support.load import Load, example
from tests.support.processes import ServiceProcess, launcher, ready
from tests.support.proxy import Proxy
from tests.support.servers import ServerProcess
from tests.support.waiting import until

PATIENT = {"update_timeout_seconds": 5.0}  # a busy machine takes its time to learn


@dataclass
class Steered:
    """The API process `near` and the learner each have a proxy before the server, `far` has none."""

    server: ServerProcess
    before_api: Proxy
    before_learner: Proxy
    near: ServiceProcess
    far: ServiceProcess
    learner: ServiceProcess
    http: httpx.AsyncClient
    model: str = ""

    @property
    def path(self) -> str:
        return f"/models/{self.model}"

    async def create(self, config: dict[str, Any]) -> None:
        (await self.http.put(self.far.url + self.path, json=config)).raise_for_status()

    async def delete(self) -> None:
        (await self.http.delete(self.far.url + self.path)).raise_for_status()

    def load(self, first: int = 0) -> Load:
        """Through both API processes."""
        return Load([self.near.url, self.far.url], model=self.model, first=first)

    async def update(
        self, api: ServiceProcess, count: int, start: int = 0, wait: bool = True
    ) -> httpx.Response:
        body = {"examples": [example(i) for i in range(start, start + count)]}
        return await self.http.post(f"{api.url}{self.path}/update?wait={str(wait).lower()}", json=body)

    async def update_until_learned(
        self, api: ServiceProcess, count: int, start: int = 0
    ) -> list[dict[str, Any]]:
        async def learned() -> list[dict[str, Any]] | None:
            answer = await self.update(api, count, start)
            assert answer.status_code in (200, 202, 404, 503), answer.text
            return answer.json()["results"] if answer.status_code == 200 else None

        return await until(learned, "the examples are learned")

    @contextlib.asynccontextmanager
    async def with_model(self, name: str, config: dict[str, Any]) -> AsyncIterator[Steered]:
        """All three processes have found the model, and the network behaves, when it begins."""
        self.model = name
        await self.create(config)
        (await self.http.get(self.near.url + self.path)).raise_for_status()
        await until(lambda: self.learner.logged(f"learning {name} from"), "the learner leads")
        try:
            yield self
        finally:
            self.before_api.behave()
            self.before_learner.behave()
            await self.http.delete(self.far.url + self.path)


@contextlib.asynccontextmanager
async def steered_processes(directory: Path) -> AsyncIterator[Steered]:
    server = ServerProcess().start()
    try:
        with launcher(directory) as launch:
            async with (
                Proxy(server.socket_path) as before_api,
                Proxy(server.socket_path) as before_learner,
                httpx.AsyncClient(timeout=30) as http,
            ):
                near, far = (launch("api", url, **PATIENT) for url in (before_api.url, server.url))
                learner = launch("learn", before_learner.url)
                await ready(near, far)
                yield Steered(server, before_api, before_learner, near, far, learner, http)
    finally:
        server.remove()

"""The memory of a service with many models after outages of Redis that outlast the lease."""

from __future__ import annotations

import re
import time
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.conftest import Report, ServerFactory
from tests.support.processes import SMALL, Launch, ServiceProcess, ready
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.slow]

MODELS = 50
OUTAGES = 3
MIB = 1 << 20
LEASE_SECONDS = 2.0


async def test_memory_stays_the_same_after_outages(
    server_factory: ServerFactory, launch: Launch, report: Report
) -> None:
    server = server_factory()
    process = launch("serve", server.url, lease_seconds=LEASE_SECONDS, snapshot_seconds=0)
    await ready(process)
    without_models = resident(process)
    names = [f"model-{number}" for number in range(MODELS)]
    async with httpx.AsyncClient(base_url=process.url, timeout=60) as http:
        for name in names:
            (await http.put(f"/models/{name}", json=SMALL)).raise_for_status()
        await learn(http, names, "first")
        before = resident(process)
        sizes = []
        for outage in range(OUTAGES):
            server.pause()
            await until(partial(is_past, time.monotonic() + LEASE_SECONDS + 1))
            server.resume()
            await learn(http, names, f"after outage {outage}")
            sizes.append(resident(process))
    report(
        f"{MODELS} models: {before / MIB:.0f} MiB, then " + ", ".join(f"{size / MIB:.0f}" for size in sizes)
    )
    assert before < 2 * without_models
    assert max(sizes) < 1.25 * before


def is_past(moment: float) -> bool:
    return time.monotonic() > moment


async def learn(http: httpx.AsyncClient, models: list[str], event: str) -> None:
    """One example of each model; returns when all of them are learned and all models have a learner."""

    async def learned(model: str) -> bool:
        example = {"features": {"ad": "a"}, "label": 1, "event_id": event}
        reply = await http.post(f"/models/{model}/update", json=example)
        return reply.status_code == 200 and reply.json()["status"] in ("learned", "duplicate")

    for model in models:
        await until(partial(learned, model))

    async def all_lead() -> bool:
        text = (await http.get("/metrics")).text
        return len(re.findall(r'^ftrl_learner_active\{model="model-\d+"\} 1', text, re.MULTILINE)) == MODELS

    await until(all_lead)


def resident(process: ServiceProcess) -> int:
    """Resident memory in bytes without huge pages: which arrays get some, to touch a few bytes, is chance."""
    lines = Path(f"/proc/{process.process.pid}/smaps_rollup").read_text().splitlines()[1:]
    kibibytes = {name: int(size.split()[0]) for name, _, size in (line.partition(":") for line in lines)}
    return (kibibytes["Rss"] - kibibytes["AnonHugePages"]) * 1024

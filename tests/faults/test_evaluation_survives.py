"""Figures are exactly what they were after whatever ends the learner or its server."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pytest

from service.models.replica import Replica
from tests.conftest import ServerFactory
from tests.support.invariants import assert_learned_once
from tests.support.load import Load
from tests.support.processes import Launch, ServiceProcess, ready
from tests.support.waiting import until_in_thread

pytestmark = pytest.mark.faults

ONLINE = re.compile(r"^(ftrl_(?:online|model)_\w+\{[^}]*\}) (.+)$", re.MULTILINE)


def scraped(learner: ServiceProcess) -> dict[str, float]:
    """All quality figures that it exports."""
    metrics = httpx.get(f"{learner.url}/metrics", timeout=10, verify=False).raise_for_status().text
    return {name: float(value) for name, value in ONLINE.findall(metrics)}


def evaluation(api: ServiceProcess) -> dict[str, Any]:
    return dict(
        httpx.get(f"{api.url}/models/default/evaluation", timeout=10, verify=False).raise_for_status().json()
    )


def complete(learner: ServiceProcess, replica: Replica) -> bool:
    """True once it publishes figures of all examples and of the state after them."""
    figures = scraped(learner)
    examples = {value for name, value in figures.items() if name.startswith("ftrl_online_examples{")}
    nonzero = figures.get('ftrl_model_nonzero_features{model="default"}')
    return examples == {replica.state.t} and nonzero == replica.state.nonzero(replica.config.hyper)


async def test_figures_survive_kills_of_the_learner_and_its_server(
    server_factory: ServerFactory, launch: Launch
) -> None:
    server = server_factory(appendfsync="always")
    api = launch("api", server.url)
    learner = launch("learn", server.url)
    await ready(api)
    async with Load([api.url]) as load:
        await load.more(300)
        learner.kill9()  # in the middle of learning
        learner = launch("learn", server.url)
        await load.more(300)
    replica = await assert_learned_once(server, load.acknowledged)
    await until_in_thread(lambda: complete(learner, replica), "all is published")
    before, reply = scraped(learner), evaluation(api)
    assert reply["sources"]["progressive"]["windows"]["all"]["auc"] in before.values()
    learner.kill9()
    server.kill9()
    await asyncio.to_thread(server.start)
    learner = launch("learn", server.url)
    await until_in_thread(lambda: complete(learner, replica), "all is published again")
    assert scraped(learner) == before
    assert evaluation(api)["sources"] == reply["sources"]

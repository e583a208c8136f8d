"""A network that loses requests and replies between the service and the server."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import httpx
import pytest

from ftrl_client import AsyncClient, Example
from tests.support.caller import caller
from tests.support.invariants import assert_learned_once, assert_mirror_equals, meta_of, topology_of
from tests.support.load import Load, example
from tests.support.proxy import Fault, Request
from tests.support.steered import Steered

pytestmark = [pytest.mark.faults, pytest.mark.asyncio(loop_scope="module")]


def names(count: int) -> list[str]:
    return [f"event-{i}" for i in range(count)]


async def test_an_append_whose_reply_is_lost_is_logged_once(
    steered: Steered,
) -> None:
    lost = steered.before_api.lose_reply("append", times=2)
    answer = await steered.update(steered.near, 20)
    assert lost.happened == 2
    assert answer.status_code == 200
    assert {one["status"] for one in answer.json()["results"]} == {"learned"}
    replica = await assert_learned_once(steered.server, names(20), steered.model)
    await assert_mirror_equals(steered.near.url, replica)


async def test_the_client_repeats_an_update_of_unknown_outcome_which_is_learned_once(
    steered: Steered,
) -> None:
    lost = steered.before_api.lose_reply("append", times=10_000)
    refused = asyncio.Event()

    async def note(reply: httpx.Response) -> None:
        if reply.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            refused.set()

    async with AsyncClient(steered.near.url, model=steered.model, timeout=60) as client:
        client._http.event_hooks = {"response": [note]}
        update = asyncio.create_task(client.update(Example({"user": "u1"}, label=1, event_id="event-0")))
        await refused.wait()
        lost.left = 0
        assert (await update).status == "duplicate"  # of what was appended when its reply was lost
    await assert_learned_once(steered.server, ["event-0"], steered.model)


@pytest.mark.parametrize("fault", ["lose_request", "cut_request"])
async def test_an_append_that_does_not_arrive_is_sent_again(steered: Steered, fault: str) -> None:
    lost = getattr(steered.before_api, fault)("append", times=2)
    answer = await steered.update(steered.near, 20)
    assert lost.happened == 2
    assert answer.status_code == 200
    await assert_learned_once(steered.server, names(20), steered.model)


async def test_a_commit_whose_reply_is_lost_happens_once(steered: Steered) -> None:
    lost = steered.before_learner.lose_reply("commit", times=2)
    async with topology_of(steered.server) as topology:
        before = await meta_of(topology, steered.model)
        answer = await steered.update(steered.near, 20)
        await lost.spent.wait()
        after = await meta_of(topology, steered.model)
    assert answer.status_code == 200
    assert (after.commit, after.t) == (before.commit + 1, 20)
    replica = await assert_learned_once(steered.server, names(20), steered.model)
    await assert_mirror_equals(steered.near.url, replica)


async def test_a_commit_that_does_not_arrive_is_sent_again(steered: Steered) -> None:
    lost = steered.before_learner.cut_request("commit", times=2)
    assert (await steered.update(steered.near, 20)).status_code == 200
    await lost.spent.wait()
    await assert_learned_once(steered.server, names(20), steered.model)


async def test_an_update_without_a_reply_is_reported_unknown(
    steered: Steered,
) -> None:
    lost = steered.before_api.lose_reply("append", times=10_000)
    body = {"features": {"user": "u1"}, "label": 1}
    answer = await steered.http.post(f"{steered.near.url}{steered.path}/update", json=body)
    assert answer.status_code == 503
    problem = answer.json()
    assert problem["outcome"] == "unknown"
    (event_id,) = problem["event_ids"]
    lost.left = 0
    again = await steered.http.post(
        f"{steered.near.url}{steered.path}/update", json=body | {"event_id": event_id}
    )
    assert (again.status_code, again.json()["status"]) == (200, "duplicate")
    await assert_learned_once(steered.server, [event_id], steered.model)


async def test_an_update_that_never_arrived_is_reported_as_such(
    steered: Steered,
) -> None:
    lost = steered.before_api.lose_request("append", times=10_000)
    answer = await steered.update(steered.near, 1)
    assert answer.status_code == 503
    assert answer.json()["outcome"] == "unknown"  # from here a lost request looks like a lost reply
    lost.left = 0
    answer = await steered.update(steered.near, 1)
    assert answer.json()["results"][0]["status"] == "learned"


async def test_on_an_unreliable_network_everything_is_learned_once(steered: Steered) -> None:
    steered.before_api.chaos = unreliable(1)
    steered.before_learner.chaos = unreliable(2)
    async with Load([steered.near.url], clients=8, model=steered.model) as load:
        await load.more(1500)
        steered.before_api.chaos = steered.before_learner.chaos = None
    replica = await assert_learned_once(steered.server, load.acknowledged, steered.model)
    await assert_mirror_equals(steered.near.url, replica)


async def test_events_resent_by_200_clients_are_learned_once(steered: Steered) -> None:
    steered.before_api.chaos = storm = Storm()
    events = [example(i, "storm") for i in range(50)]
    statuses: Counter[int] = Counter()
    url = f"{steered.near.url}{steered.path}/update"

    async def client(number: int) -> None:
        drawn = random.Random(number)
        async with caller() as service:
            for _ in range(6):
                answer = await service.post(url, {"examples": drawn.sample(events, 5)})
                statuses[answer.status] += 1

    await asyncio.gather(*(client(number) for number in range(200)))
    assert storm.lost >= 5
    assert statuses.keys() <= {200, 202, 503}
    steered.before_api.behave()
    replica = await assert_learned_once(steered.server, [str(e["event_id"]) for e in events], steered.model)
    assert replica.state.t == 50
    await assert_mirror_equals(steered.near.url, replica)


def unreliable(seed: int, share: float = 0.05) -> Callable[[Request], Fault | None]:
    drawn = random.Random(seed)

    def chaos(_: Request) -> Fault | None:
        return drawn.choice(list(Fault)) if drawn.random() < share else None

    return chaos


class Storm:
    """Loses every second reply to an append."""

    def __init__(self) -> None:
        self.appends = 0
        self.lost = 0

    def __call__(self, request: Request) -> Fault | None:
        if request.verb != "append":
            return None
        self.appends += 1
        if self.appends % 2:
            return None
        self.lost += 1
        return Fault.LOSE_REPLY


async def test_a_label_whose_reply_is_lost_is_learned_once(
    steered: Steered,
) -> None:
    name = f"{steered.model}-labels"
    config = {"feedback": {"learn_at": "arrival", "exposure": "on_predict", "log": True}}
    path = f"{steered.near.url}/models/{name}"
    (await steered.http.put(path, json=config)).raise_for_status()
    served = (await steered.http.post(f"{path}/predict", json={"features": {"ad": "a1"}})).json()
    lost = steered.before_api.lose_reply("label")
    answer = await steered.http.post(f"{path}/update", json={"id": served["id"], "label": 1})
    described = (await steered.http.get(path)).json()
    await steered.http.delete(path)
    assert lost.happened == 1
    assert (answer.status_code, answer.json()["status"]) == (200, "duplicate")
    assert answer.json()["probability"] == served["probability"], "that of the first when it was learned"
    assert described["t"] == 1

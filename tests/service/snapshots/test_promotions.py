"""A challenger takes the place of its champion, and goes on as what that was, while updates come."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

import pytest

from service.errors import ChallengerRefused, RestoreConflict, ServerFull, UnknownModel
from service.learning.auto_promotion import CHECK_EVERY_SECONDS
from service.models.aliases import Aliases
from service.models.challengers import read_challengers
from service.models.promotions import Promotion, read_promotions
from service.models.registry import OpenModel
from service.models.replica import Replica
from service.snapshots.restore.challenge import challenge
from service.snapshots.restore.promotion import Promoted, promote, promote_model
from service.snapshots.store.catalogue import SnapshotStore
from service.storage.channel import open_channel
from tests.service.snapshots.test_challengers import EMPTY, caught_up, challenged, learned_after, rebuilt
from tests.support.snapshot_systems import CONFIG, catalogue
from tests.support.system import System, stored
from tests.support.waiting import until


async def promoted(system: System, number: int | None = None, name: str = "b") -> Promoted:
    store, models = SnapshotStore(system.settings), system.models
    return await promote_model(models, Aliases(models), store, name, number, "as the test says")


async def noted(system: System) -> list[Promotion]:
    async with open_channel(system.settings) as channel:
        return await read_promotions(channel, (await stored(system.topology)).keys)


async def exchanged(system: System, promotion: Promotion, name: str = "b") -> Replica:
    """The challenger, once it has got what its champion was."""

    async def is_another() -> Replica | None:
        replica = await stored(system.topology, name)
        return replica if replica.generation != promotion.generation else None

    return await until(is_another, f"{name} is what its champion was")


async def test_champion_and_challenger_exchange_states_and_configurations(
    system: System, model: OpenModel
) -> None:
    await challenged(system, "now", **EMPTY)
    await system.update(model, 40, start=60)
    challenger, champion = await caught_up(system), await stored(system.topology)
    done = await promoted(system)
    assert done.model == "clicks"
    now = await stored(system.topology)
    assert now.state.digest() == challenger.state.digest()
    assert (now.config.hyper, now.config.hashing) == (challenger.config.hyper, challenger.config.hashing)
    assert (now.config.evaluation, now.config.feedback) == (CONFIG.evaluation, CONFIG.feedback)
    assert model.mirror.replica.revision == done.revision == now.revision
    former = await exchanged(system, done.promotion)
    assert former.state.digest() == champion.state.digest()
    assert (former.config.hyper, former.config.hashing) == (CONFIG.hyper, CONFIG.hashing)
    await system.update(model, 30, start=100)
    former, now = await caught_up(system), await stored(system.topology)
    assert (now.state.t, former.state.t) == (70, 130)
    one_pass = await learned_after(system, challenger.state, 100, now)
    assert now.state.digest() == one_pass.digest()
    other_pass = await learned_after(system, champion.state, 100, former)
    assert former.state.digest() == other_pass.digest()
    assert [(await rebuilt(system, name)).difference for name in ("clicks", "b")] == ["", ""]
    (note,) = await noted(system)
    assert (note.number, note.challenger, note.reason) == (1, "b", "as the test says")


async def test_the_way_back_is_another_promotion(system: System, model: OpenModel) -> None:
    await challenged(system, "now", **EMPTY)
    before = await stored(system.topology)
    first = await promoted(system)
    await exchanged(system, first.promotion)
    second = await promoted(system)
    assert (await stored(system.topology)).state.digest() == before.state.digest()
    back = await exchanged(system, second.promotion)
    assert back.config.hashing.bits == 16
    assert [note.number for note in await noted(system)] == [2, 1]


async def test_updates_during_promotions_are_learned_once_by_both(system: System, model: OpenModel) -> None:
    await challenged(system, "log", **EMPTY)
    stop, sent = asyncio.Event(), 60

    async def keep_sending() -> int:
        nonlocal sent
        while not stop.is_set():
            results = await system.update(model, 7, start=sent)
            assert {result.status for result in results} == {"learned"}
            sent += 7
        return sent

    sending = asyncio.create_task(keep_sending())
    for _ in range(4):
        done = await promoted(system)
        await exchanged(system, done.promotion)
    stop.set()
    await sending
    former, now = await caught_up(system), await stored(system.topology)
    assert (now.state.t, former.state.t) == (sent, sent)
    assert (now.config.hashing.bits, former.config.hashing.bits) == (CONFIG.hashing.bits, 16)
    for replica in (now, former):
        one_pass = await learned_after(system, replica.config.empty_state(), 0, replica)
        assert replica.state.digest() == one_pass.digest()


async def test_the_learner_of_a_champion_goes_on_with_a_larger_table(
    system: System, model: OpenModel, caplog: pytest.LogCaptureFixture
) -> None:
    await challenged(system, "now", hashing={"bits": CONFIG.hashing.bits + 2})
    await promoted(system)
    for start in (60, 90):
        await system.update(model, 30, start=start)
    assert "failed and is restarted" not in caplog.text


async def test_a_request_that_comes_twice_promotes_once(system: System, model: OpenModel) -> None:
    await challenged(system, "now", **EMPTY)
    first = await promoted(system, number=1)
    await exchanged(system, first.promotion)
    again = await promoted(system, number=1)
    assert again.promotion == first.promotion
    assert len(await noted(system)) == 1
    with pytest.raises(ChallengerRefused, match="The next promotion has number 2, not 5"):
        await promoted(system, number=5)


async def test_of_two_at_once_one_is_refused(system: System, model: OpenModel) -> None:
    await challenged(system, "now", **EMPTY)
    await challenged(system, "now", name="c", hyper={"l1": 1.0})
    results = await asyncio.gather(
        *(promoted(system, name=name) for name in ("b", "c")), return_exceptions=True
    )
    refused = [result for result in results if isinstance(result, RestoreConflict)]
    assert len(refused) + len([result for result in results if isinstance(result, Promoted)]) == 2
    assert len(await noted(system)) == 2 - len(refused)
    assert [(await rebuilt(system, name)).difference for name in ("clicks", "b", "c")] == ["", "", ""]


async def test_a_learner_that_starts_later_completes_the_exchange(system: System) -> None:
    learning = system.learn()
    model = await system.model(CONFIG)
    await system.update(model, 60)
    await challenged(system, "log", **EMPTY)
    await caught_up(system)
    before = await stored(system.topology)
    learning.cancel()
    with suppress(asyncio.CancelledError):
        await learning
    async with open_channel(system.settings) as channel:
        done = await promote(channel, SnapshotStore(system.settings), "b", None, "no learner is there")
        with pytest.raises(RestoreConflict, match="has not yet got the state of the former champion"):
            await promote(channel, SnapshotStore(system.settings), "b", None, "too early")
    system.learn()
    former = await exchanged(system, done.promotion)
    assert former.state.digest() == before.state.digest()


async def test_only_a_challenger_whose_champion_is_there_can_be_promoted(
    system: System, model: OpenModel
) -> None:
    with pytest.raises(ChallengerRefused, match="is no challenger"):
        await promoted(system, name="clicks")
    await challenged(system, "now", **EMPTY)
    await system.models.delete("clicks")
    with pytest.raises(UnknownModel):
        await promoted(system)


async def test_a_server_without_room_refuses_it_before_anything_is_saved(
    system: System, model: OpenModel
) -> None:
    await system.update(model, 2000, start=60)  # far more than a server frees by itself meanwhile
    await challenged(system, "log", **EMPTY)
    await caught_up(system)
    saved = catalogue(system).entries()
    used = (await system.client.info("memory"))["used_memory"]
    await system.client.config_set("maxmemory", used + 10_000)
    for _ in range(2):
        with pytest.raises(ServerFull):
            await promoted(system)
    assert catalogue(system).entries() == saved
    await system.client.config_set("maxmemory", 0)
    await promoted(system)


async def test_one_that_is_better_for_long_enough_is_promoted_by_itself_if_asked_for(system: System) -> None:
    """The champion learns features that mean nothing; the penalty leaves the challenger the click rate."""
    system.learn()
    model = await system.model(CONFIG.changed({"hyper": {"rate": {"kind": "adaptive", "alpha": 3.0}}}))
    await challenged(system, "now", hyper={"l1": 1e6})
    sent = 0

    async def is_better() -> bool:
        nonlocal sent
        await system.update(model, 500, start=sent)
        sent += 500
        async with open_channel(system.settings) as channel:
            (challenger,) = await read_challengers(channel, model.mirror.replica.keys)
        return challenger.comparison.figures().verdict == "better"

    await until(is_better, "it is better")
    await system.update(model, 500, start=sent)
    await caught_up(system)
    assert await noted(system) == []
    store, models = SnapshotStore(system.settings), system.models
    again = partial(challenge, models, Aliases(models), store, "b", "clicks", "now", {"hyper": {"l1": 1e6}})
    _, created = await again(promote_after=400)
    assert not created
    (note,) = await until(lambda: noted(system), "it is promoted")
    assert note.reason.startswith("better since example")
    await exchanged(system, note)
    async with open_channel(system.settings) as channel:
        (challenger,) = await read_challengers(channel, model.mirror.replica.keys)
    assert challenger.comparison.figures().pairs == 0
    former, now = await caught_up(system), await stored(system.topology)
    assert (former.config.hyper.l1, now.config.hyper.l1) == (CONFIG.hyper.l1, 1e6)
    assert (now.state.t, former.state.t) == (sent + 500, sent + 500)
    await asyncio.sleep(2.5 * CHECK_EVERY_SECONDS)  # what was compared before says nothing of the two now
    assert len(await noted(system)) == 1

"""What an operator sees of the example log, and how a learner gets past what it cannot read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict

import pytest
from typer.testing import CliRunner

from model_core.examples.batch import ExampleBatch
from model_core.learning.state import ModelState
from service.cli.log import lines_of
from service.cli.main import application
from service.errors import CommandFailure, UnknownModel
from service.example_log.inspect import describe_log, skip_through
from service.models.registry import OpenModel
from service.models.replica import read_meta
from service.storage.channel import Channel, open_channel
from service.storage.records import LogEntry, LogId, Meta
from tests.conftest import SettingsFactory
from tests.support.commands import run
from tests.support.proxy import Proxy
from tests.support.servers import ServerProcess
from tests.support.system import System, read_log, stored
from tests.support.waiting import until


@pytest.fixture
async def system(valkey: ServerProcess, make_settings: SettingsFactory) -> AsyncIterator[System]:
    async with System(make_settings(valkey, update_timeout_seconds=0.3)) as system:
        yield system


@pytest.fixture
async def model(system: System) -> OpenModel:
    return await system.model()


class Operator:
    """What `ftrl log` does, in this process."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    async def show(self, start: str | None = None, count: int = 20) -> list[str]:
        return list(lines_of(asdict(await describe_log(self.channel, "clicks", start, count))))

    async def skip(self, entry: LogId | str) -> int:
        return await skip_through(self.channel, "clicks", str(entry))

    async def meta(self) -> Meta:
        return await read_meta(self.channel, "clicks")


@pytest.fixture
async def operator(system: System) -> AsyncIterator[Operator]:
    async with open_channel(system.settings) as channel:
        yield Operator(channel)


async def put_by_hand(system: System, model: OpenModel, *fields: str) -> LogId:
    log = model.mirror.replica.keys.log
    return LogId.parse(await system.client.execute_command("XADD", log, "*", *fields))


async def drop_entry(system: System, model: OpenModel, entry: LogEntry) -> None:
    await system.client.xdel(model.mirror.replica.keys.log, str(entry.id))


async def update_until_learned(system: System, model: OpenModel, count: int, start: int) -> None:
    """The learner goes on: what is appended now is learned, be it a moment later."""
    rounds = model.mirror.replica.state.t
    await system.update(model, count, start)
    await until(lambda: model.mirror.replica.state.t >= rounds + count)


async def until_blocked(system: System) -> None:
    blocked = b'ftrl_learner_blocked{model="clicks"} 1.0'
    await until(lambda: blocked in system.metrics.render())


def pass_over(model: OpenModel, entries: list[LogEntry]) -> ModelState:
    state = model.config.empty_state()
    for entry in entries:
        model.config.learn(state, ExampleBatch.from_bytes(entry.records))
    return state


async def assert_dense(
    system: System, operator: Operator, model: OpenModel, leave_out: list[LogId], lost: int = 0
) -> None:
    """All but some entries made the state, and every number is accounted for."""
    meta, replica = await operator.meta(), await stored(system.topology)
    entries = [entry for entry in await read_log(system.topology, replica) if entry.id not in leave_out]
    assert replica.state.digest() == pass_over(model, entries).digest()
    assert (meta.backlog, meta.applied_number) == (0, meta.appended)
    assert meta.appended == replica.state.t + lost
    assert entries[-1].first_number == meta.appended - entries[-1].examples


async def test_the_waiting_entries_are_shown_with_their_numbers(
    system: System, model: OpenModel, operator: Operator
) -> None:
    await system.update(model, 8, wait=False)
    await system.update(model, 1, start=8, wait=False)
    first, second = await read_log(system.topology, model.mirror.replica)
    assert await operator.show() == [
        "model clicks: 2 entries; learned through 0-0, 9 examples wait",
        f"{first.id}  examples 0..7  2 clicks, 32 features",
        f"{second.id}  examples 8..8  0 clicks, 4 features",
    ]
    assert (await operator.show(count=1))[1:] == [f"{first.id}  examples 0..7  2 clicks, 32 features"]


async def test_what_is_learned_is_shown_on_demand(
    system: System, model: OpenModel, operator: Operator
) -> None:
    system.learn()
    await update_until_learned(system, model, 8, start=0)
    (entry,) = await read_log(system.topology, model.mirror.replica)
    head = f"model clicks: 1 entries; learned through {entry.id}, 0 examples wait"
    assert await operator.show() == [head]
    assert await operator.show("0") == [head, f"{entry.id}  examples 0..7  2 clicks, 32 features"]
    assert await operator.show(str(entry.id)) == await operator.show("0")
    assert await operator.show(str(entry.id.milliseconds + 1)) == [head]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (("n", "5", "e", "garbage"), "UNREADABLE: "),
        (("foo", "bar"), "UNREADABLE: not written by this service"),
    ],
)
async def test_an_unreadable_entry_stops_the_learner_until_it_is_skipped(
    system: System, model: OpenModel, operator: Operator, fields: tuple[str, ...], says: str
) -> None:
    system.learn()
    await system.update(model, 5)
    bad = await put_by_hand(system, model, *fields)
    await until_blocked(system)
    (result,) = await system.update(model, 1, start=5)
    assert result.status == "appended"
    (line,) = [line for line in await operator.show() if line.startswith(str(bad))]
    assert says in line
    assert not any("GAP" in line for line in await operator.show())
    assert await operator.skip(bad) == 0
    await until(lambda: model.mirror.replica.state.t == 6)
    await update_until_learned(system, model, 4, start=6)
    await assert_dense(system, operator, model, leave_out=[bad])


async def test_unreadable_entries_in_a_row_are_skipped_together(
    system: System, model: OpenModel, operator: Operator
) -> None:
    system.learn()
    await system.update(model, 5)
    bad = [
        await put_by_hand(system, model, *fields) for fields in (("a", "b"), ("n", "5", "e", "x"), ("c", "d"))
    ]
    await system.update(model, 2, start=5)
    await until_blocked(system)
    await operator.skip(bad[-1])
    await until(lambda: model.mirror.replica.state.t == 7)
    await assert_dense(system, operator, model, leave_out=bad)


async def test_an_unreadable_last_entry_leaves_later_numbers_unchanged(
    system: System, model: OpenModel, operator: Operator
) -> None:
    await system.update(model, 5, wait=False)
    bad = await put_by_hand(system, model, "n", "99", "e", "x")
    assert await operator.skip(bad) == 5
    system.learn()
    await update_until_learned(system, model, 2, start=5)
    first, *_ = await read_log(system.topology, model.mirror.replica)
    await assert_dense(system, operator, model, leave_out=[first.id, bad], lost=5)


async def test_a_gap_stops_the_learner_until_it_is_skipped(
    system: System, model: OpenModel, operator: Operator
) -> None:
    for start in (0, 4, 9):
        await system.update(model, 5 if start else 4, start=start, wait=False)
    _, second, third = await read_log(system.topology, model.mirror.replica)
    await drop_entry(system, model, second)
    system.learn()
    await until(lambda: model.mirror.replica.state.t == 4)
    await until_blocked(system)
    gap, shown = (await operator.show())[1:]
    assert gap == f"{third.id.before()}  GAP: 5 examples before {third.id} are not in the log"
    assert shown.startswith(f"{third.id}  examples 9..13 ")
    assert await operator.skip(gap.split()[0]) == 5
    await until(lambda: model.mirror.replica.state.t == 9)
    await assert_dense(system, operator, model, leave_out=[], lost=5)


async def test_a_log_that_lost_its_end_is_shown_and_skipped(
    system: System, model: OpenModel, operator: Operator
) -> None:
    for start in (0, 4):
        await system.update(model, 4, start=start, wait=False)
    first, second = await read_log(system.topology, model.mirror.replica)
    for entry in (first, second):
        await drop_entry(system, model, entry)
    (gap,) = (await operator.show())[1:]
    assert gap == f"{second.id}  GAP: the last 8 examples are not in the log"
    assert await operator.skip(second.id) == 8
    assert len(await operator.show()) == 1
    system.learn()
    await update_until_learned(system, model, 2, start=8)
    await assert_dense(system, operator, model, leave_out=[], lost=8)


@pytest.mark.parametrize("learned", [True, False])
async def test_numbers_that_go_back_are_a_gap_too(
    system: System, model: OpenModel, operator: Operator, learned: bool
) -> None:
    if learned:
        system.learn()
    await system.update(model, 5, wait=learned)
    bad = await put_by_hand(system, model, "n", "2", "e", "x")
    if not learned:
        system.learn()
    await until_blocked(system)
    gap, unreadable = (await operator.show())[1:]
    assert gap == f"{bad.before()}  GAP: {bad} begins with example 2, although 5 comes next"
    assert unreadable.startswith(f"{bad}  UNREADABLE")
    await operator.skip(bad)
    await update_until_learned(system, model, 2, start=5)
    await assert_dense(system, operator, model, leave_out=[bad])


async def test_waiting_examples_can_be_left_out_where_no_learner_runs(
    system: System, model: OpenModel, operator: Operator
) -> None:
    for start in (0, 3, 6):
        await system.update(model, 3, start=start, wait=False)
    first, second, _ = await read_log(system.topology, model.mirror.replica)
    assert await operator.skip(second.id) == 6
    system.learn()
    await until(lambda: model.mirror.replica.state.t == 3)
    await assert_dense(system, operator, model, leave_out=[first.id, second.id], lost=6)


async def test_what_is_learned_cannot_be_skipped(
    system: System, model: OpenModel, operator: Operator
) -> None:
    system.learn()
    await update_until_learned(system, model, 5, start=0)
    (entry,) = await read_log(system.topology, model.mirror.replica)
    with pytest.raises(CommandFailure, match=f"learned or skipped through {entry.id} already"):
        await operator.skip(entry.id)


async def test_nothing_beyond_the_end_can_be_skipped(
    system: System, model: OpenModel, operator: Operator
) -> None:
    with pytest.raises(
        CommandFailure, match="the log of clicks ends at 0-0: there is nothing to skip at 5-0"
    ):
        await operator.skip("5-0")
    await system.update(model, 5, wait=False)
    (entry,) = await read_log(system.topology, model.mirror.replica)
    with pytest.raises(CommandFailure, match=f"ends at {entry.id}: there is nothing to skip at"):
        await operator.skip(LogId(entry.id.milliseconds + 1000, 0))
    assert (await operator.meta()).applied == LogId(0, 0)


async def test_a_skip_gives_way_to_a_learner_that_was_quicker(
    system: System, model: OpenModel, valkey: ServerProcess
) -> None:
    await system.update(model, 5, wait=False)
    (entry,) = await read_log(system.topology, model.mirror.replica)
    async with Proxy(valkey.socket_path) as proxy:
        hold = proxy.hold("commit")
        async with open_channel(system.settings.model_copy(update={"redis_url": proxy.url})) as channel:
            skipping = asyncio.create_task(skip_through(channel, "clicks", str(entry.id)))
            await hold.reached.wait()
            system.learn()
            await until(lambda: model.mirror.replica.state.t == 5)
            hold.release()
            with pytest.raises(CommandFailure, match="already"):
                await skipping
    assert (await stored(system.topology)).state.t == 5


@pytest.mark.parametrize(
    "entry", ["", "x", "-5", "5-", "5-x", "5--1", "1_0", "+", "9" * 20, "1-" + "9" * 20, "٣"]
)
async def test_what_is_no_id_of_an_entry_is_refused(model: OpenModel, operator: Operator, entry: str) -> None:
    for errand in (operator.skip, operator.show):
        with pytest.raises(CommandFailure, match="is not the id of a log entry"):
            await errand(entry)


async def test_a_model_that_is_not_there_is_named(operator: Operator) -> None:
    errands: list[Callable[[], Awaitable[object]]] = [operator.show, lambda: operator.skip("5-0")]
    for errand in errands:
        with pytest.raises(UnknownModel):
            await errand()


async def test_the_commands_say_what_they_did(
    system: System, model: OpenModel, valkey: ServerProcess
) -> None:
    await system.update(model, 3, wait=False)
    (entry,) = await read_log(system.topology, model.mirror.replica)
    where = ("--model", "clicks", "--redis-url", valkey.url)
    shown = await asyncio.to_thread(run, "log", "show", *where)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.splitlines()[1] == f"{entry.id}  examples 0..2  1 clicks, 12 features"
    skipped = await asyncio.to_thread(run, "log", "skip", str(entry.id), *where)
    assert (skipped.returncode, skipped.stderr) == (0, "")
    assert skipped.stdout == f"skipped 3 examples of clicks through {entry.id}\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("skip",), "Missing argument"),
        (("show", "--count", "0"), "--count"),
        (("show", "--model", "no such"), "is not a model name"),
    ],
)
def test_a_wrong_call_exits_with_2(words: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(application("log"), ["log", *words], env={"COLUMNS": "500"})
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("show", "--model", "other"), "ftrl: There is no model 'other'. The data is at unix://"),
        (("show", "--redis-url", "redis://127.0.0.1:1"), "ftrl: Error 111 connecting to 127.0.0.1:1."),
    ],
)
def test_a_failure_is_one_line_and_exits_with_1(
    valkey: ServerProcess, words: tuple[str, ...], says: str
) -> None:
    result = run("log", *words, FTRL_REDIS_URL=valkey.url)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(says)
    assert result.stderr.count("\n") == 1

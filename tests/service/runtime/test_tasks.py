"""Background tasks end, however they do."""

from __future__ import annotations

import asyncio

from service.runtime.tasks import cancel_all


async def test_all_have_ended_when_it_returns() -> None:
    cleaned_up: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            cleaned_up.append(name)

    tasks = [asyncio.create_task(work(name)) for name in ("a", "b")]
    await asyncio.sleep(0)
    await cancel_all(tasks)
    assert cleaned_up == ["a", "b"]
    assert all(task.cancelled() for task in tasks)


async def test_how_a_task_ended_does_not_matter() -> None:
    async def fail() -> None:
        raise OSError("lost")

    tasks = [asyncio.create_task(fail()), asyncio.create_task(asyncio.sleep(0))]
    await asyncio.wait(tasks)
    await cancel_all(tasks)
    assert isinstance(tasks[0].exception(), OSError)


async def test_tasks_that_change_meanwhile_may_be_given() -> None:
    tasks: set[asyncio.Task[None]] = set()
    for _ in range(3):
        task = asyncio.create_task(asyncio.sleep(60))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await cancel_all(tasks)
    await cancel_all(tasks)
    assert not tasks

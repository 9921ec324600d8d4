"""Tasks in the background are kept, report their failure, and end when they are cancelled."""

from __future__ import annotations

import asyncio

import pytest

from fedmq.transport.background_tasks import BackgroundTasks, being_cancelled, end


async def test_a_task_whose_library_swallows_a_cancellation_ends_nevertheless() -> None:
    swallowed = 0

    async def deaf() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 3:
                    raise

    task = asyncio.create_task(deaf())
    await asyncio.sleep(0)
    async with asyncio.timeout(15):
        await end([task])

    assert task.cancelled() and swallowed == 3


async def test_tasks_that_failed_or_are_done_are_ended_already() -> None:
    async def fails() -> None:
        raise ValueError("on its own")

    failed, done = asyncio.create_task(fails()), asyncio.create_task(asyncio.sleep(0))
    await asyncio.wait([failed, done])
    await end([failed, done])
    await end([])

    assert isinstance(failed.exception(), ValueError)


async def test_a_cancellation_that_a_library_raises_on_its_own_is_told_apart() -> None:
    seen: list[bool] = []

    async def waits(future: asyncio.Future[None]) -> None:
        try:
            await future
        except asyncio.CancelledError:
            seen.append(being_cancelled())

    loop = asyncio.get_running_loop()
    for cancel_task in (False, True):
        future: asyncio.Future[None] = loop.create_future()
        task = asyncio.create_task(waits(future))
        await asyncio.sleep(0)
        (task if cancel_task else future).cancel()
        await asyncio.wait([task])

    assert seen == [False, True]


async def test_a_spawned_task_is_kept_until_it_ends() -> None:
    tasks, let = BackgroundTasks(), asyncio.Event()

    async def wait() -> None:
        await let.wait()

    spawned = tasks.spawn(wait())
    assert list(tasks) == [spawned]
    let.set()
    await spawned
    await asyncio.sleep(0)
    assert list(tasks) == []


async def test_all_that_was_spawned_is_cancelled_together() -> None:
    tasks = BackgroundTasks()
    spawned = [tasks.spawn(asyncio.sleep(60)) for _ in range(2)]
    await asyncio.sleep(0)
    tasks.cancel()
    await asyncio.wait(spawned)
    assert all(task.cancelled() for task in spawned)


async def test_closing_also_ends_what_is_spawned_meanwhile() -> None:
    tasks = BackgroundTasks()
    later: list[asyncio.Task[None]] = []

    async def leaves_another_behind() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            later.append(tasks.spawn(asyncio.sleep(60)))

    first = tasks.spawn(leaves_another_behind())
    await asyncio.sleep(0)
    async with asyncio.timeout(15):
        await tasks.close()

    assert first.cancelled() and later[0].cancelled()
    assert list(tasks) == []


async def test_a_failure_is_logged_when_it_happens(caplog: pytest.LogCaptureFixture) -> None:
    tasks = BackgroundTasks()

    async def fails() -> None:
        raise ValueError("no such row")

    failed = tasks.spawn(fails())
    await asyncio.wait([failed])
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "ValueError: no such row" in caplog.text
    assert list(tasks) == []

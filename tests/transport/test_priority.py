"""Long messages wait for scores, but not for ever."""

from __future__ import annotations

import asyncio

from fedmq.transport.link import PriorityGate


async def test_a_long_message_waits_until_the_last_score_is_through() -> None:
    priority_gate = PriorityGate()
    order: list[str] = []

    async def long_message() -> None:
        await priority_gate.wait()
        order.append("sent")

    with priority_gate.taken():
        with priority_gate.taken():
            sending = asyncio.create_task(long_message())
            await asyncio.sleep(0)
        order.append("one score")
        await asyncio.sleep(0)
    order.append("both scores")
    await sending

    assert order == ["one score", "both scores", "sent"]


async def test_nobody_waits_while_no_score_holds_it() -> None:
    waiting = asyncio.create_task(PriorityGate().wait())
    await asyncio.sleep(0)
    assert waiting.done()


async def test_scores_without_end_do_not_hold_up_a_training() -> None:
    priority_gate = PriorityGate()
    with priority_gate.taken():
        async with asyncio.timeout(15):
            await priority_gate.wait()


async def test_a_score_that_fails_releases_it() -> None:
    priority_gate = PriorityGate()
    try:
        with priority_gate.taken():
            raise ValueError("no score")
    except ValueError:
        pass
    waiting = asyncio.create_task(priority_gate.wait())
    await asyncio.sleep(0)
    assert waiting.done()

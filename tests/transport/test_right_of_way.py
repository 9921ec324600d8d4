"""Whoever has much to send waits for scores, but not for ever."""

from __future__ import annotations

import asyncio

from fedmq.transport.priority import RightOfWay


async def test_it_is_given_until_the_last_score_is_through() -> None:
    right_of_way = RightOfWay()
    order: list[str] = []

    async def long_message() -> None:
        await right_of_way.give()
        order.append("sent")

    with right_of_way.taken():
        with right_of_way.taken():
            sending = asyncio.create_task(long_message())
            await asyncio.sleep(0)
        order.append("one score")
        await asyncio.sleep(0)
    order.append("both scores")
    await sending

    assert order == ["one score", "both scores", "sent"]


async def test_it_costs_nothing_while_nobody_takes_it() -> None:
    giving = asyncio.create_task(RightOfWay().give())
    await asyncio.sleep(0)
    assert giving.done()


async def test_scores_without_end_do_not_hold_up_a_training() -> None:
    right_of_way = RightOfWay()
    with right_of_way.taken():
        async with asyncio.timeout(5):
            await right_of_way.give()


async def test_a_score_that_fails_gives_it_back() -> None:
    right_of_way = RightOfWay()
    try:
        with right_of_way.taken():
            raise ValueError("no score")
    except ValueError:
        pass
    giving = asyncio.create_task(right_of_way.give())
    await asyncio.sleep(0)
    assert giving.done()

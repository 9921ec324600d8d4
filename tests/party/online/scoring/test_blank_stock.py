"""Ciphertexts that are made ahead, while nobody waits, and each handed out once."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmq.party.online.blank_stock import BlankStock
from fedmq.privacy.sealed_scores.ciphertexts import blank, filled, sealed
from fedmq.privacy.sealed_scores.parameters import DEGREE
from tests.party.online.serving_harness import ServingHarness
from tests.protocol.online.sealed_parties import Sealing
from tests.protocol.online.test_online import World


class AtOnce(Executor):
    """Does all work at once."""

    def submit(self, work: Any, /, *args: Any, **more: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*args, **more))
        return done


@pytest.fixture(scope="module")
def world() -> World:
    return World(rows=100, trees=3)


def test_a_blank_that_is_filled_is_what_encryption_makes() -> None:
    secret, public, hidden = (bytes([number]) * 32 for number in range(3))
    plaintext = np.arange(DEGREE)
    (right,) = sealed(plaintext[np.newaxis], secret, [(public, hidden)])
    found = filled(blank(secret, public, hidden), plaintext)
    assert found.seed == right.seed and np.array_equal(found.words, right.words)


async def test_blanks_are_made_while_there_is_time_and_handed_out_once(world: World) -> None:
    idle = True
    stock = BlankStock(AtOnce(), lambda: idle)
    model = Sealing(world).model
    assert stock.take(model) == []
    seeds: list[bytes] = []
    for _ in range(3):
        stock.refill()
        await _until(stock, 16)
        seeds += [made.seed for made in stock.take(model)]
    assert len(set(seeds)) == 6
    idle = False
    stock.refill()
    assert len(stock._blanks) == 14
    assert stock.take(replace(model, secret=b"t" * 32)) == []  # a blank is of one key


async def test_a_stop_while_a_blank_is_made_begins_no_other(world: World) -> None:
    errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    begun, may_end = threading.Event(), threading.Event()

    class Held(ThreadPoolExecutor):
        def submit(self, work: Any, /, *args: Any, **more: Any) -> Future[Any]:
            def held() -> Any:
                begun.set()
                may_end.wait()
                return work(*args, **more)

            return super().submit(held)

    executor = Held(1)
    stock = BlankStock(executor, lambda: True)
    stock.take(Sealing(world).model)
    stock.refill()
    await asyncio.to_thread(begun.wait)
    await stock.close()
    may_end.set()
    await asyncio.to_thread(executor.shutdown)
    stock.refill()
    await asyncio.sleep(0)
    assert (stock._blanks, errors) == ([], [])


async def _until(stock: BlankStock, count: int) -> None:
    for _ in range(10_000):
        if len(stock._blanks) >= count:
            return
        await asyncio.sleep(0.001)
    raise AssertionError(f"{len(stock._blanks)} blanks")


async def test_scores_by_blanks_are_those_without(world: World) -> None:
    harness = ServingHarness(world, mode="sealed", deadline=20.0)
    first = await harness.margins(world.ids[:5])
    await _until(harness.scorer.batcher._stock, 4)
    again = await harness.margins(world.ids[:5])
    np.testing.assert_array_equal(first, again)

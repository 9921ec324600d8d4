"""A party crashes between garbling and evaluation, and hidden sums are computed anew.

Whoever listens has what was sent before the crash and after it. Two labels of one wire, or two sums
under one mask, would tell what they hide: so nothing that looks random may be sent twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmq.boosting.params import TrainParams
from fedmq.messages.array import Array
from fedmq.messages.body import Body
from fedmq.messages.codec import decode
from fedmq.messages.training import CircuitPiece
from fedmq.party.configuration.job import TrainingJob
from fedmq.privacy.engine import Engine
from fedmq.privacy.oblivious_transfer.base_transfers import MakeOffer
from fedmq.privacy.plan import Plan
from fedmq.privacy.random_stream import SEED_BYTES
from fedmq.protocol.training import passive
from fedmq.protocol.training.passive_growth import PreparedTraining
from tests.how_often import seldom
from tests.party.daemons_in_memory import DaemonsInMemory

BLOCK = 16  # bytes of a label
OFFERED_BY_ALL = MakeOffer(bytes(SEED_BYTES), ahead=True).run()[0].tobytes()
JOB = TrainingJob(
    model="m",
    engine="lattice",
    engine_options={"sums": "hidden"},
    params=TrainParams(
        num_boost_round=1,
        max_depth=1,
        max_bin=6,
        max_cat_to_onehot=None,
        xgboost_arithmetic="3.2",
    ),
)


class Heard(DaemonsInMemory):
    """Daemons of which all is heard; from the third piece of telco's circuits on they get lost."""

    async def train_through_a_crash(self, victim: str) -> set[bytes]:
        """The blocks that were sent both before ``victim`` crashed and after it."""
        sent: dict[bool, set[bytes]] = {False: set(), True: set()}
        garbled, pieces = asyncio.Event(), 0

        async def hear(sender: str, _: str, message: str) -> bool:
            nonlocal pieces
            envelope = decode(message.encode("latin-1"))
            first = envelope.header.attempt == 1
            sent[first].update(*map(blocks_of, arrays_of(envelope.body)))
            if not first or sender != "telco" or not isinstance(envelope.body, CircuitPiece):
                return False
            pieces += 1
            if pieces == 3:
                garbled.set()
            return pieces >= 3

        self.hold = hear
        asked = asyncio.create_task(self.ask("bank", "train", job=JOB.model_dump(mode="json")))
        await garbled.wait()
        await self.stop(victim)
        await self.start(victim)
        await asyncio.gather(asked, return_exceptions=victim == "bank")

        async def finished() -> bool:
            return all(names == ["m"] for names in self.models().values())

        await self.until(finished)
        assert min(map(len, sent.values())) > 5_000
        return sent[True] & sent[False]


def arrays_of(body: Body) -> Iterator[NDArray[np.uint8]]:
    """The bytes of what an engine's halves send one another in ``body``."""
    for field in (getattr(body, name) for name in type(body).model_fields):
        for value in field.values() if isinstance(field, dict) else ():
            if isinstance(value, Array):
                data = value.data.removeprefix(OFFERED_BY_ALL)
                yield np.frombuffer(data, np.uint8)


def blocks_of(data: NDArray[np.uint8]) -> set[bytes]:
    """One in 64 of the blocks of ``data`` that look random, chosen by what they begin with."""
    if len(data) < BLOCK:
        return set()
    blocks = np.lib.stride_tricks.sliding_window_view(data, BLOCK)
    blocks = blocks[blocks[:, 0] % 64 == 7]
    different = (np.diff(np.sort(blocks, axis=1), axis=1) > 0).sum(axis=1) + 1
    return {block.tobytes() for block in blocks[different >= 12]}


@pytest.mark.parametrize("victim", ["telco", *seldom("bank", "retail")])
async def test_nothing_random_is_sent_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    async with Heard(tmp_path, monkeypatch, engines=("lattice",)) as federation:
        assert not await federation.train_through_a_crash(victim)


@pytest.mark.long
async def test_parties_that_draw_the_same_secret_again_are_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = passive.PassiveTraining._preparing

    def prepare_again(machine: passive.PassiveTraining, spec: Engine) -> Plan[PreparedTraining]:
        machine._secret = int.from_bytes(machine._party.encode(), "big")
        return prepare(machine, spec)

    monkeypatch.setattr(passive.PassiveTraining, "_preparing", prepare_again)
    async with Heard(tmp_path, monkeypatch, engines=("lattice",)) as federation:
        assert len(await federation.train_through_a_crash("telco")) > 100

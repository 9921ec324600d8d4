"""Passive parties that multiply in mode sealed, beside those of `World` that show directions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.messages.online import OnlineProducts, OnlineSealed
from fedmq.protocol.online.options import AskedRows, Timeouts
from fedmq.protocol.online.passive import AnsweringShare
from fedmq.protocol.online.sealed_active import SealedBatch
from fedmq.protocol.online.sealed_passive import MaskSeeds, SealedShare
from fedmq.protocol.sealed_sums import SealedModel
from tests.protocol.online.test_online import World


def seed_between(first: str, second: str) -> bytes | None:
    return hashlib.sha256(f"{first} {second}".encode()).digest() if first and second else None


@dataclass
class Multiplying:
    """Answers sealed questions of one party, with the ``answering`` share's rows."""

    answering: AnsweringShare
    share: SealedShare
    seeds: MaskSeeds
    asked: list[OnlineSealed] = field(default_factory=list)

    def products(self, body: OnlineSealed) -> OnlineProducts:
        self.asked.append(body)
        self.share.check(body)
        row_of = self.answering.row_of
        places = np.array([row_of.get(name, -1) for name in body.ids])
        return self.share.products(body, self.answering.values[places], places < 0, self.seeds)


def multiplying(model: SealedModel, shares: Mapping[str, AnsweringShare]) -> dict[str, Multiplying]:
    """The parties that hold ``shares``, with seeds that are always the same."""
    found = {}
    for party, answering in shares.items():
        share = SealedShare.of(answering.share, model.terms(party))
        seeds = MaskSeeds(
            hashlib.sha256(party.encode()).digest(),
            seed_between(share.previous, party),
            seed_between(party, share.following),
        )
        found[party] = Multiplying(answering, share, seeds)
    return found


class Sealing:
    """The model of ``world`` in mode sealed; ``parties`` by name are fresh."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.model = SealedModel.of(world.model.share, b"s" * 32)

    def parties(self, shares: Mapping[str, AnsweringShare] | None = None) -> dict[str, Multiplying]:
        return multiplying(self.model, shares or self.world.shares)

    def batch(
        self,
        rows: NDArray[np.int64],
        requests: list[AskedRows] | None = None,
        *,
        number: int = 0,
        ids: list[str] | None = None,
        timeouts: Timeouts | None = None,
        away: Mapping[str, str] | None = None,
        **more: Any,
    ) -> SealedBatch:
        return SealedBatch(
            number,
            self.world.served,
            self.model,
            ids or [self.world.ids[row] for row in rows],
            self.world.columns["active"][rows],
            requests or [AskedRows(0, len(rows), 60.0)],
            timeouts or Timeouts(),
            number.to_bytes(32),
            away or {},
            **more,
        )

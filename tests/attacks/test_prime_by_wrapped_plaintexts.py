"""A passive party makes plaintexts larger than Okamoto-Uchiyama's prime p: they wrap modulo p.

Which candidate wins then says something of p, a bit for each split, and enough bits factor the key.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from gmpy2 import powmod

from fedmq.boosting.gradients import FixedPoint
from fedmq.errors import Inconsistent
from fedmq.messages.training import SplitDecision
from fedmq.privacy.engine import Query
from fedmq.privacy.homomorphic.packing import SlotLayout
from fedmq.privacy.homomorphic.passive import AdditivePassive
from fedmq.privacy.homomorphic.residues import from_wire, to_wire
from fedmq.privacy.plan import Plan, Reply
from tests.protocol.federation import ACTIVE, OU, small

ROWS = 30_000


def _wrapping_answer(self: Any, queries: Sequence[Query]) -> Plan[None]:
    """Multiples of single ciphertexts that lie far beyond p."""
    layout, modulus = self._layout, self._key.modulus
    for query in queries:
        rows = query.rows[self._carried[query.rows]]
        made = [
            powmod(row, secrets.randbits(self._key.plaintext_bits + 20), modulus)
            for row in from_wire(self._ciphertexts[rows[:4]], modulus)
        ]
        shown = to_wire(self._key.rerandomise(made), modulus)
        count = len(made) * layout.capacity
        yield Reply(query.node, self._pieces(shown, count, layout))


@pytest.mark.parametrize("seed", range(8))
def test_the_session_ends_before_anything_is_decided(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AdditivePassive, "answer", _wrapping_answer)
    sent: list[Any] = []
    federation = small(counts=(0, 3), seed=seed).having(engine=OU)
    simulation = federation.train(tap=lambda envelope: sent.append(envelope.body))
    error = simulation.errors[ACTIVE]
    assert isinstance(error, Inconsistent)
    # Whatever did not hold, it reads the same: that the session ended is the only bit.
    assert str(error) == "telco: tree 0, node 1: no rows of the node have these sums"
    assert not [body for body in sent if isinstance(body, SplitDecision)]


def test_a_wrapped_plaintext_of_six_sums_hardly_ever_lies_in_bounds() -> None:
    random = np.random.default_rng(1)
    floats = np.stack((random.choice([-0.2, 0.8], ROWS, p=[0.8, 0.2]), np.full(ROWS, 0.16)), 1)
    scale = FixedPoint.of(floats.astype(np.float32))
    pairs = scale.encode(floats.astype(np.float32))
    bound = ROWS << scale.value_bits
    layout = SlotLayout.for_sums(bound, bound, 682)
    assert layout.capacity == 6
    most = np.maximum(pairs, 0).sum(axis=0)
    least = pairs.sum(axis=0) - most
    tried = 20_000
    bits = layout.capacity * layout.slot_bits
    half = 1 << (bits - 1)
    plaintexts = [secrets.randbelow(1 << bits) - half for _ in range(tried)]
    survived = 0
    for plaintext in plaintexts:
        sums = _digits(plaintext, layout)
        survived += all(((least <= pair) & (pair <= most)).all() for pair in sums)
    assert survived <= tried // 1000, survived


def _digits(plaintext: int, layout: SlotLayout) -> list[list[int]]:
    pairs = []
    for _ in range(layout.capacity):
        digit = (plaintext + (1 << (layout.slot_bits - 1))) % (1 << layout.slot_bits)
        digit -= 1 << (layout.slot_bits - 1)
        plaintext = (plaintext - digit) >> layout.slot_bits
        pairs.append([digit >> layout.h_bits, digit & ((1 << layout.h_bits) - 1)])
    return pairs

"""A passive party that lies reads every label from one answer.

It makes up packed sums of one row each. A digit that is too small borrows from the slot above where
the row's g is negative, and takes that candidate below ``min_child_weight``; all others tie, and
without its checks the active party would name all that tie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from gmpy2 import mpz
from numpy.typing import NDArray

from fedmq.errors import Inconsistent
from fedmq.messages.training import SplitDecision
from fedmq.privacy.engine import Query
from fedmq.privacy.homomorphic.passive import AdditivePassive
from fedmq.privacy.homomorphic.residues import from_wire, to_wire
from fedmq.privacy.plan import Plan, Reply
from fedmq.protocol.training.claims import ConsistencyCheck
from fedmq.protocol.training.offers import ScoreAnswer
from tests.protocol.federation import ACTIVE, PAILLIER, Federation

ROWS = 60
TREE = 1
WEIGHT_BITS = 42  # of min_child_weight = 1 where the largest h lies between 1/8 and 1/4


def lying_answer(self: Any, queries: Sequence[Query]) -> Plan[None]:
    """Two slots for each row: a digit that borrows where g < 0, and the weight that it spoils."""
    if queries[0].tree != TREE:
        yield from _honest_answer(self, queries)
        return
    layout, n, modulus = self._layout, self._key.n, self._key.modulus
    w, s = layout.h_bits, layout.slot_bits
    low = (1 << w) - (1 << 41) - (1 << (s - 1))
    high = (1 << (w - 3) << w) + (1 << WEIGHT_BITS)
    pair = mpz(low + (high << s))
    for query in queries:
        targets = from_wire(self._ciphertexts[query.rows], modulus)
        packed = [target * (1 + pair * n) % modulus for target in targets]
        shown = to_wire(self._key.rerandomise(packed), modulus)
        yield Reply(query.node, self._pieces(shown, len(packed) * layout.capacity, layout))


_honest_answer = AdditivePassive.answer


def _attacked(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Any, list[SplitDecision], NDArray[np.float32]]:
    random = np.random.default_rng(3)
    X = random.normal(size=(ROWS, 2)).astype(np.float32)
    label = (X[:, 0] + random.normal(size=ROWS) > 0).astype(np.float32)
    monkeypatch.setattr(AdditivePassive, "answer", lying_answer)
    decisions: list[SplitDecision] = []

    def tap(envelope: Any) -> None:
        if isinstance(envelope.body, SplitDecision) and envelope.body.tree == TREE:
            decisions.append(envelope.body)

    federation = Federation.dealt(X, label, (0, 2), max_depth=1, min_child_weight=1.0)
    return federation.having(engine=PAILLIER).train(tap=tap), decisions, label


def test_no_label_is_disclosed_and_all_learn_who_lied(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation, decisions, _ = _attacked(monkeypatch)
    error = simulation.errors[ACTIVE]
    assert isinstance(error, Inconsistent)
    assert error.party == "telco"
    assert error.evidence["tree"] == TREE
    assert "telco: tree 1, node 1" in str(simulation.errors["telco"])
    assert not decisions


def test_without_the_checks_it_reads_every_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScoreAnswer, "best", lambda self: self.score.run())
    monkeypatch.setattr(ConsistencyCheck, "check_count", lambda *_: None)
    monkeypatch.setattr(ConsistencyCheck, "check_size", lambda *_: None)
    _, decisions, label = _attacked(monkeypatch)
    [decision] = decisions
    negative = np.ones(ROWS, np.bool_)
    negative[decision.candidates.numpy() // 2] = False  # of two slots of a row, the upper one
    assert (negative == (label == 1)).all()

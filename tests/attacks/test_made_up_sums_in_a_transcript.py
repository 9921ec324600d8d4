"""Whoever makes up sums is named by tree and node, even where no check ends the training.

The active party's own checks are switched off here: what they cannot see in other lies is found in
the same way.
"""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.splits import ColumnMark
from fedmq.computation import computation
from fedmq.errors import Inconsistent
from fedmq.messages import training
from fedmq.messages.array import Array
from fedmq.privacy.engines import smm1, smm2
from fedmq.privacy.homomorphic.passive import AdditivePassive
from fedmq.privacy.lattice.passive import LatticePassive
from fedmq.privacy.plan import Ended, Plan, Reply
from fedmq.protocol.machine import advance, on_message
from fedmq.protocol.training.claims import ConsistencyCheck
from fedmq.protocol.training.offers import ScoreAnswer
from fedmq.protocol.training.passive_growth import PassiveGrowth
from tests.accountability.audited import AuditedDaemons
from tests.attacks.test_labels_by_a_borrowed_digit import TREE, lying_answer


async def test_made_up_sums_are_found_in_the_transcript(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = PassiveGrowth._on_decision

    @on_message(training.SplitDecision)
    def decide(growth: Any, sender: str, body: training.SplitDecision) -> None:
        if body.tree == TREE:  # any split will do: the labels are read by now
            body = body.model_copy(update={"candidates": Array.of(np.zeros(1, np.uint32))})
        honest(growth, sender, body)

    daemons = AuditedDaemons(tmp_path, monkeypatch)
    with pytest.MonkeyPatch.context() as lies:
        lies.setattr(AdditivePassive, "answer", lying_answer)
        lies.setattr(PassiveGrowth, "_on_decision", decide)
        lies.setattr(ScoreAnswer, "best", lambda self: self.score.run())
        for check in ("check_count", "check_size"):
            lies.setattr(ConsistencyCheck, check, lambda *_: None)
        await daemons.trained(TREE + 2, "paillier")
    with pytest.raises(Inconsistent) as raised:
        daemons.verified()
    assert str(raised.value) == (
        f"telco: attempt 1, tree {TREE}, node 1: its sums are not those of its table"
    )


def shown_for_another(honest: Any, *args: Any) -> Plan[None]:
    """Under `lattice`: each candidate is said to be worth what another one is."""
    plan, value = honest(*args), None
    while not isinstance(step := advance(plan, value), Ended):
        if isinstance(step, Reply):
            [piece] = step.pieces
            step = Reply(step.node, [{name: array[::-1].copy() for name, array in piece.items()}])
        value = yield step


def a_hair_off(honest: Any, *args: Any) -> Any:
    """Under `smm1`: of candidates that tie, one row decides by the sign of its g."""
    pieces = honest(*args)
    pieces[0]["w"][0, 0] += 1e-12
    return pieces


def a_higher_gain(honest: Any, *args: Any) -> Any:
    """Under `smm2`: a party that wants to win."""
    best = honest(*args)
    return best | {"gain": best["gain"] + 1e-9}


@pytest.mark.parametrize(
    ("engine", "liar", "function", "lie"),
    [
        ("lattice", LatticePassive, "answer", shown_for_another),
        ("smm1", smm1, "hide_splits", a_hair_off),
        ("smm2", smm2, "_score_hidden", a_higher_gain),
    ],
    ids=["lattice", "smm1", "smm2"],
)
async def test_made_up_sums_of_other_engines_are_found_in_the_transcript(
    engine: str,
    liar: Any,
    function: str,
    lie: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    with pytest.MonkeyPatch.context() as lies:
        lies.setattr(liar, function, _lying(lie, getattr(liar, function)))
        lies.setattr(ConsistencyCheck, "mark", lambda *_: ColumnMark())
        # Else vectors that hide too little by chance have a node asked about as in smm1.
        lies.setattr(smm2, "_LEAST_LEVERAGE", 0.0)
        lies.setattr(ScoreAnswer, "best", lambda self: self.score.run())  # if a bound finds it out
        await daemons.trained(2, engine)
    with pytest.raises(Inconsistent, match="tree 0, node 1: its sums are not those of its table"):
        daemons.verified()


def _lying(lie: Any, honest: Any) -> Any:
    """``lie`` in place of ``honest``, which is a method or a computation."""

    @wraps(honest)
    def lying(*args: Any) -> Any:
        return lie(honest, *args)

    return computation(honest.label)(lying) if hasattr(honest, "label") else lying

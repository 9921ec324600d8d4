"""Whoever makes up sums is named by tree and node, even where no check ends the training.

The label holder's own checks are switched off here: what they cannot see in other lies is found in
the same way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmq.errors import Inconsistent
from fedmq.messages import training
from fedmq.messages.array import Array
from fedmq.privacy.homomorphic.passive import AdditivePassive
from fedmq.protocol.training.consistency import NodeAnswer, ScoreAnswer
from fedmq.protocol.training.passive import PassiveTraining
from tests.accountability.audited import AuditedDaemons
from tests.attacks.test_labels_by_a_borrowed_digit import TREE, lying_answer


async def test_made_up_sums_are_found_in_the_transcript(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = PassiveTraining.HANDLERS[training.SplitDecision]

    def decide(machine: Any, sender: str, body: training.SplitDecision) -> None:
        if body.tree == TREE:  # any split will do: the labels are read by now
            body = body.model_copy(update={"candidates": Array.of(np.zeros(1, np.uint32))})
        honest(machine, sender, body)

    daemons = AuditedDaemons(tmp_path, monkeypatch)
    with pytest.MonkeyPatch.context() as lies:
        lies.setattr(AdditivePassive, "answer", lying_answer)
        lies.setitem(PassiveTraining.HANDLERS, training.SplitDecision, decide)
        lies.setattr(ScoreAnswer, "run", lambda self: self.score.run())
        for check in ("check_count", "check_extent"):
            lies.setattr(NodeAnswer, check, lambda *_: None)
        await daemons.trained(TREE + 2, "paillier")
    with pytest.raises(Inconsistent) as raised:
        daemons.verified()
    assert str(raised.value) == (
        f"telco: attempt 1, tree {TREE}, node 1: its sums are not those of its table"
    )

"""Sums that are true, of sets that are invented: no check of the active party can tell.

Each candidate is a real left side and some of a few people; the one that wins says on which side of
zero their gradients lie, and so their labels. The directions fit the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmq.errors import Inconsistent
from fedmq.messages import training
from fedmq.privacy.cleartext_sums import CleartextPassive
from fedmq.privacy.engine import Query
from fedmq.privacy.lattice.passive import LatticePassive
from fedmq.privacy.plan import Plan, Reply
from fedmq.protocol.machine import on_message
from fedmq.protocol.training import passive_growth
from fedmq.protocol.training.passive_growth import PassiveGrowth
from tests.accountability.audited import AuditedDaemons

PEOPLE = 3
PATTERNS = np.arange(1 << PEOPLE)[:, None] >> np.arange(PEOPLE) & 1


def _answer_of(half: Any, liar: InventedSets, queries: Sequence[Query]) -> Plan[None]:
    return liar.answer(half, queries)


class InventedSets:
    """A passive party that answers about every root with sets of its own making."""

    def __init__(self, lies: pytest.MonkeyPatch, tree: int) -> None:
        self.tree = tree
        self.sides: dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray]] = {}
        self.won = 0
        self._answer = CleartextPassive.answer
        self._decide = PassiveGrowth._on_decision
        lies.setattr(CleartextPassive, "answer", partialmethod(_answer_of, self))

        @on_message(training.SplitDecision)
        def decide(growth: Any, sender: str, body: training.SplitDecision) -> None:
            self.decide(growth, sender, body)

        lies.setattr(PassiveGrowth, "_on_decision", decide)

    def answer(self, half: Any, queries: Sequence[Query]) -> Plan[None]:
        [query] = queries[:1]
        if query.tree < self.tree or query.node != 1:
            yield from self._answer(half, queries)
            return
        held = query.rows[half._carried[query.rows]]
        people, others = held[:PEOPLE], held[PEOPLE:]
        side = others[half._bins.codes[others, 0] <= 3]
        left = half._pairs[side].sum(axis=0) + PATTERNS @ half._pairs[people]
        self.sides[id(half), query.tree, query.node] = side, people
        yield Reply(query.node, [{"left": left.astype(np.int64)}])
        half._histograms[query.node] = np.zeros((half._bins.cuts.n_cells, 2), np.int64)
        half._histograms.clear()

    def decide(self, growth: Any, sender: str, body: training.SplitDecision) -> None:
        place = id(growth.engine), body.tree, body.node
        if place not in self.sides:
            self._decide(growth, sender, body)
            return
        self.won += 1
        side, people = self.sides[place]
        rows = growth.rows.rows(body.node)
        chosen = people[PATTERNS[int(body.candidates.numpy()[0])].astype(bool)]
        left = np.isin(rows, np.concatenate((side, chosen)))
        candidates = growth.candidates.of_node(body.node)
        record = growth.splits.add(candidates, 0, growth.tree, body.node)
        growth._show(body.node, record, left)
        growth.rows.divide(body.node, left)


async def test_sums_of_invented_sets_are_found_in_the_transcript(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    with pytest.MonkeyPatch.context() as lies:
        liar = InventedSets(lies, tree=2)
        await daemons.trained(6)
    assert liar.won  # the training has ended well, and labels were told
    with pytest.raises(Inconsistent) as raised:
        daemons.verified()
    assert str(raised.value) == (
        "telco: attempt 1, tree 2, node 1: its sums are not those of its table"
    )


class InventedColumn:
    """Under `lattice`, a passive party that invents sets before the first tree.

    Its hints bind all sums. Of its first column some of a few people go left, the more the higher
    the cut.
    """

    def __init__(self, lies: pytest.MonkeyPatch) -> None:
        self.won = 0
        self.sides: dict[float, np.ndarray] = {}
        self._start = LatticePassive.start_session
        self._went_left = passive_growth.went_left
        lies.setattr(LatticePassive, "start_session", partialmethod(_start_of, self))
        lies.setattr(passive_growth, "went_left", self.went_left)

    def invented(self, codes: np.ndarray) -> np.ndarray:
        codes = np.where(codes <= 3, 0, 7)
        codes[:PEOPLE] = 1 + np.arange(PEOPLE)
        return codes

    def start(self, half: Any, *args: Any) -> None:
        self._start(half, *args)
        half._bins.codes[:, 0] = codes = self.invented(half._bins.codes[:, 0])
        for place, threshold in enumerate(half._bins.cuts.thresholds[0].tolist()):
            self.sides[threshold] = codes <= place

    def went_left(self, records: Any, record: int, values: Any, bins: Any, rows: Any) -> Any:
        if int(records.feature[record]):
            return self._went_left(records, record, values, bins, rows)
        self.won += 1
        return self.sides[float(records.threshold[record])][rows]


def _start_of(half: Any, liar: InventedColumn, *args: Any) -> None:
    liar.start(half, *args)


async def test_hints_at_invented_sets_are_found_in_the_transcript(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    with pytest.MonkeyPatch.context() as lies:
        liar = InventedColumn(lies)
        await daemons.trained(6, "lattice")
    assert liar.won  # no check of the active party has seen it
    with pytest.raises(Inconsistent) as raised:
        daemons.verified()
    assert str(raised.value) == (
        "telco: attempt 1: what it sent before the first tree is not what its table gives"
    )

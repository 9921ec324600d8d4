"""A passive party invents sets of people in trainings of classes, of drawn rows, of dart, under
constraints and beyond an earlier model: the auditor finds each of these lies by tree and node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.params import TrainParams
from fedmq.errors import Inconsistent
from fedmq.party.configuration.job import TrainingJob
from tests.accountability.audited import AuditedDaemons
from tests.attacks.test_sums_of_invented_sets import PATTERNS, InventedSets
from tests.how_often import seldom

CLASSES = {"objective": "multi:softprob", "num_class": 2}
KINDS: dict[str, dict[str, Any]] = {
    "classes": CLASSES,
    "drawn by gradients": {"goss": True, "top_rate": 0.5, "other_rate": 0.3},
    "dart": {"booster": "dart", "rate_drop": 0.5},
    "a forest of classes": {**CLASSES, "num_parallel_tree": 2, "subsample": 0.8},
    "a sign": {"monotone_constraints": {"telco.x0": 1}},
    "constraints": {"interaction_constraints": (("x0", "telco.x0"), ("telco.x1",))},
    "by gains": {"grow_policy": "lossguide", "max_leaves": 4},
}
OFTEN = ("classes", "a sign")
AGREED = 'agreed_columns = ["x0", "x1"]\ninteraction_constraints = true\n'


class InventedEverywhere(InventedSets):
    """Answers about roots with as many candidates as it has, so that their marks fit."""

    def answer(self, half: Any, queries: Any) -> Any:
        invented = super().answer(half, queries)
        [query] = queries[:1]
        if query.tree < self.tree or query.node != 1:
            yield from invented
            return
        reply = next(invented)
        sums = reply.pieces[0]
        sums["left"] = sums["left"][np.arange(len(query.order)) % len(PATTERNS)]
        yield reply
        next(invented, None)

    def decide(self, growth: Any, sender: str, body: Any) -> None:
        place = id(growth.engine), body.tree, body.node
        if place in self.sides:
            chosen = body.candidates.numpy() % len(PATTERNS)
            body = body.model_copy(update={"candidates": type(body.candidates).of(chosen)})
        super().decide(growth, sender, body)


async def lied(daemons: AuditedDaemons, kind: dict[str, Any], **job: Any) -> InventedSets:
    """Train while telco lies from the second tree on, and stop."""
    params = TrainParams.model_validate(
        {"num_boost_round": 4, "max_depth": 2, "max_bin": 8, **kind}
    )
    asked = TrainingJob(model="m", engine="plain", params=params, **job)
    with pytest.MonkeyPatch.context() as lies:
        liar = InventedEverywhere(lies, tree=1)
        await daemons.ask("bank", "train", job=asked.model_dump(mode="json"))
    await daemons.stop()
    return liar


@pytest.mark.parametrize("kind", [*OFTEN, *seldom(*(kind for kind in KINDS if kind not in OFTEN))])
async def test_an_invented_set_is_found_by_tree_and_node(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch, AGREED)
    await daemons.start()
    liar = await lied(daemons, KINDS[kind])
    assert liar.sides  # it was asked, and has lied
    with pytest.raises(Inconsistent, match=r"telco: attempt 1, tree \d+, node 1: its sums are not"):
        daemons.verified()


@pytest.mark.long
async def test_beyond_an_earlier_model_it_is_found_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    await daemons.start()
    await daemons.train("first", 1)
    [first] = daemons.sessions
    liar = await lied(daemons, {}, continue_from="first")
    assert liar.sides
    [second] = set(daemons.sessions) - {first}
    monkeypatch.setattr(AuditedDaemons, "sessions", [second])
    with pytest.raises(Inconsistent, match="its sums are not those of its table"):
        daemons.verified()

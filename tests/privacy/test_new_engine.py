"""A class in a module of its own and a line in the registry are all that a new engine takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import fedmq
from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.gradients import Gradients
from fedmq.errors import ConfigError, MessageError
from fedmq.privacy import registry
from fedmq.privacy.cleartext_sums import CleartextPassive, checked_pairs, largest_reply
from fedmq.privacy.engine import (
    ActiveHalf,
    Answer,
    AskedNode,
    BroadcastPiece,
    Engine,
    Leakage,
    PassiveHalf,
    SizeLimit,
    Sums,
    Traits,
)
from fedmq.privacy.plan import Exchange, Plan, Values

RANDOM = np.random.default_rng(8)
X = np.round(RANDOM.normal(size=(150, 5)), 1).astype(np.float32)
Y = (X[:, 0] - X[:, 4] + RANDOM.normal(size=150) > 0).astype(np.float32)


@dataclass(frozen=True)
class Multiplied(Engine):
    """Gradients travel ``times`` as large, and sums return so."""

    times: int = 3

    name = "multiplied"
    traits = Traits(exact=True, light=True)
    leakage = Leakage(active="all sums", passive="every g and h")

    def active(self, parallelism: int) -> ActiveHalf:
        return _Active(self.times)

    def passive(self, public: Values, bins: BinMatrix, parallelism: int) -> PassiveHalf:
        return CleartextPassive(bins)


class _Active(ActiveHalf):
    def __init__(self, times: int) -> None:
        self._times = times

    def open(self) -> Plan[Values]:
        return {}
        yield

    def broadcast(self, gradients: Gradients) -> Sequence[Plan[BroadcastPiece]]:
        return [self._piece(gradients)]

    def _piece(self, gradients: Gradients) -> Plan[BroadcastPiece]:
        rows = np.flatnonzero(gradients.carried).astype(np.uint32)
        return BroadcastPiece(rows, {"pairs": gradients.pairs[rows] * self._times})
        yield

    def largest_reply(self, candidates: int, rows: int) -> SizeLimit:
        return largest_reply(candidates)

    def ask(self, peer: str, asked: AskedNode) -> Plan[Answer]:
        [piece] = yield Exchange()
        sums, rest = np.divmod(checked_pairs(piece, "left"), self._times)
        if rest.any():
            raise MessageError("sums of other gradients")
        return Sums(sums)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.CLASSES, "multiplied", f"{__name__}:Multiplied")


def trained(engine: str, **options: Any) -> fedmq.SimulatedModel:
    return fedmq.simulate(
        active=X[:, :2],
        label=Y,
        passive={"telco": X[:, 2:4], "shop": X[:, 4:]},
        params={"num_boost_round": 3, "max_depth": 3},
        engine=engine,
        engine_options=options,
    )


def test_it_trains_without_loss() -> None:
    model, reference = trained("multiplied", times=5), trained("plain")
    rows: dict[str, Any] = {
        "active": X[:, :2],
        "passive": {"telco": X[:, 2:4], "shop": X[:, 4:]},
    }
    np.testing.assert_array_equal(model.predict(**rows), reference.predict(**rows))


def test_its_options_are_checked_as_those_of_any_engine() -> None:
    with pytest.raises(ConfigError, match="engine 'multiplied' has no 'key_bits'; it has times"):
        trained("multiplied", key_bits=2048)
    with pytest.raises(ConfigError, match="times = 'many': Input should be a valid integer"):
        trained("multiplied", times="many")


def test_its_traits_decide_what_it_may_train(monkeypatch: pytest.MonkeyPatch) -> None:
    constrained = fedmq.TrainParams(monotone_constraints={"telco.0": 1})
    Multiplied().check(constrained)
    monkeypatch.setattr(Multiplied, "traits", replace(Multiplied.traits, exact=False))
    with pytest.raises(ConfigError, match="multiplied: monotone_constraints"):
        Multiplied().check(constrained)

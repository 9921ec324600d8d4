"""An active party announces slots as wide as its key, and gives row i the "gradient" 2^i.

Each sum then says of every row whether it is in it: the whole binned table from one tree.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedmq.errors import Aborted
from fedmq.messages.training import HistogramReply
from fedmq.privacy.homomorphic.active import AdditiveActive
from fedmq.privacy.homomorphic.engine import AdditiveEngine
from fedmq.privacy.homomorphic.packing import SlotLayout
from fedmq.privacy.homomorphic.passive import AdditivePassive
from tests.protocol.federation import ACTIVE, OU, PAILLIER, small

FORGED = {
    "one slot of the whole key": lambda layout, bits: replace(layout, slot_bits=bits, capacity=1),
    "one slot": lambda layout, _: replace(layout, capacity=1),
    "a wider slot": lambda layout, _: replace(layout, slot_bits=layout.slot_bits + 1),
    "a wider h": lambda layout, _: SlotLayout(layout.h_bits + 20, 2 * layout.h_bits + 41, 1),
}


def _forge(patch: pytest.MonkeyPatch, forgery: Any) -> None:
    honest = AdditiveActive._best_layout

    def layout(self: Any, *arguments: Any) -> SlotLayout:
        return forgery(honest(self, *arguments), self._key.public.plaintext_bits)

    patch.setattr(AdditiveActive, "_best_layout", layout)


@pytest.mark.parametrize("engine", [PAILLIER, replace(OU, key_bits=768)], ids=lambda e: e.name)
@pytest.mark.parametrize("forgery", FORGED.values(), ids=FORGED)
def test_it_is_refused_at_the_first_piece(
    forgery: Any, engine: AdditiveEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _forge(monkeypatch, forgery)
    sent: list[Any] = []
    federation = small(counts=(1, 2)).having(engine=engine)
    simulation = federation.train(tap=lambda envelope: sent.append(envelope.body))
    assert "bank broke the protocol: a slot layout of" in str(simulation.errors["telco"])
    assert isinstance(simulation.errors[ACTIVE], Aborted)
    assert not [body for body in sent if isinstance(body, HistogramReply)]


def test_without_the_check_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    _forge(monkeypatch, FORGED["one slot"])
    monkeypatch.setattr(AdditivePassive, "_needed", lambda _, layout: layout)
    assert not small(counts=(1, 2)).having(engine=PAILLIER).train().errors


@pytest.mark.parametrize("params", [{}, {"subsample": 0.3}, {"gradient_bits": 4}], ids=str)
def test_honest_layouts_are_taken(params: dict[str, Any]) -> None:
    for pack_sums in (True, False):
        engine = replace(PAILLIER, key_bits=512, pack_sums=pack_sums)
        assert not small(counts=(1, 2), **params).having(engine=engine).train().errors

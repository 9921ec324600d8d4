"""Gains of the circuit are XGBoost's, bit for bit."""

from __future__ import annotations

import pytest

from fedmq.privacy.hidden_sums.circuits import gain_schedule
from fedmq.privacy.hidden_sums.shares import Field
from tests.privacy.hidden_sums.gains import KINDS, different_gains


@pytest.mark.parametrize("kind", KINDS, ids=lambda name: name.replace(" ", "-"))
def test_no_bit_of_a_gain_differs(kind: str) -> None:
    different, positive = different_gains(5, 20, 1000, **KINDS[kind])
    assert different == 0
    assert positive > 1000


def test_how_many_ands_a_gain_takes() -> None:
    assert gain_schedule(Field(57)).ands == 4823

"""Base transfers in a group of 256 bits, where a test is about what comes after them.

They take a half of the time of a small training with lattices or hidden sums. The tests in
tests/privacy/oblivious_transfer, recorded sessions, simulations and daemons take that of 2048 bits.
"""

from __future__ import annotations

import pytest
from gmpy2 import mpz

from fedmq.privacy.oblivious_transfer import base_transfers

_MODULUS = mpz(2**256 - 36113)
"""The largest p of 256 bits such that (p - 1) / 2 is prime and 2 is a square."""


@pytest.fixture(autouse=True)
def small_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parties of a test that computes in its own process take the small group."""
    monkeypatch.setattr(base_transfers, "_MODULUS", _MODULUS)

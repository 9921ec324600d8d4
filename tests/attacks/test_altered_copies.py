"""The broker's operator repeats messages that were taken, with a bit of them altered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmq.errors import Replayed, Untrusted
from fedmq.messages.codec import Parts, frame, unframe
from tests.party.sealed_parties import connect, envelope, sealers

PARTIES = connect(sealers(["bank", "telco"]))


@given(st.data())
def test_an_altered_copy_counts_as_untrusted_and_not_as_a_repetition(data: st.DataObject) -> None:
    taken = PARTIES["bank"].seal(envelope())
    PARTIES["telco"].open(taken)
    parts = unframe(taken)
    body = bytearray(parts.body)
    bit = data.draw(st.integers(0, 8 * len(body) - 1))
    body[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Untrusted):
        PARTIES["telco"].open(frame(Parts(parts.header, bytes(body), parts.seal)))
    with pytest.raises(Replayed):
        PARTIES["telco"].open(taken)

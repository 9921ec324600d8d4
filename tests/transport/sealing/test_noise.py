"""The handshake: as the specification has it, and for nobody but the two who hold the keys."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given
from hypothesis import strategies as st

from fedmq.errors import Untrusted
from fedmq.transport.sealing.noise import Initiator, respond

BANK, TELCO, ONE, OTHER = (
    X25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2, 3, 4)
)


def public(key: X25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def test_a_handshake_has_the_bytes_of_another_implementation() -> None:
    """Of ``noiseprotocol`` 0.3.1 for the same keys, prologue and payloads."""
    initiator = Initiator(b"prologue", BANK, public(TELCO), ONE)
    offer = initiator.offer()
    theirs, answer = respond(b"prologue", TELCO, public(BANK), offer, b"answer", OTHER)
    ours, payload = initiator.finish(answer)

    assert offer.hex() == (
        "5dfedd3b6bd47f6fa28ee15d969d5bb0ea53774d488bdaf9df1c6e0124b3ef22"
        "44935f31f4d253cf3796110e700d2524"
    )
    assert answer.hex() == (
        "ac01b2209e86354fb853237b5de0f4fab13c7fcbf433a61c019369617fecf10b"
        "cba7550f57026090b6512c805f0c4bf1a059390905a1"
    )
    assert payload == b"answer"
    assert ours.digest.hex() == "3296ad951d83559721b61d56429a4b71bab7fd4d6b94d449615fe5ab2995e872"
    assert ours.digest == theirs.digest
    sent = [ChaCha20Poly1305(keys.send).encrypt(bytes(12), b"x", b"") for keys in (ours, theirs)]
    assert sent[0].hex() == "9c23e4f672622b72d3799c80a8510a0578"
    assert sent[1].hex() == "660dfc0c19970a917d39ed4536003cc4e2"
    assert (ours.send, ours.receive) == (theirs.receive, theirs.send)


@given(st.data())
def test_one_altered_bit_of_either_message_is_refused_and_spoils_nothing(
    data: st.DataObject,
) -> None:
    initiator = Initiator(b"", BANK, public(TELCO))
    offer = initiator.offer()
    with pytest.raises(Untrusted):
        respond(b"", TELCO, public(BANK), flipped(data, offer))
    theirs, answer = respond(b"", TELCO, public(BANK), offer, b"payload")
    with pytest.raises(Untrusted):
        initiator.finish(flipped(data, answer))
    assert initiator.finish(answer)[0].send == theirs.receive


@pytest.mark.parametrize(
    ("prologue", "own", "peer"),
    [
        (b"another", TELCO, BANK),
        (b"", OTHER, BANK),
        (b"", TELCO, OTHER),
    ],
    ids=["prologue", "recipient", "sender"],
)
def test_another_prologue_or_key_is_refused(
    prologue: bytes, own: X25519PrivateKey, peer: X25519PrivateKey
) -> None:
    offer = Initiator(b"", BANK, public(TELCO)).offer()
    with pytest.raises(Untrusted):
        respond(prologue, own, public(peer), offer)


def test_a_point_without_a_secret_is_refused() -> None:
    with pytest.raises(Untrusted):
        respond(b"", TELCO, public(BANK), bytes(48))


def test_no_two_handshakes_have_the_same_keys() -> None:
    offer = Initiator(b"", BANK, public(TELCO)).offer()
    keys = [respond(b"", TELCO, public(BANK), offer)[0] for _ in range(2)]
    assert keys[0].send != keys[1].send


def flipped(data: st.DataObject, message: bytes) -> bytes:
    bit = data.draw(st.integers(0, 8 * len(message) - 1))
    # The highest bit of a point on the curve is ignored (RFC 7748), but the hash takes it in.
    altered = bytearray(message)
    altered[bit // 8] ^= 1 << bit % 8
    return bytes(altered)

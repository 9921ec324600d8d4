"""A thief of a party's agreement key, who also reads and writes on the broker."""

from __future__ import annotations

from typing import cast

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedmq.errors import Stale, Untrusted
from fedmq.messages.body import Abort
from fedmq.messages.codec import Parts, frame, pack, unframe
from fedmq.messages.envelope import Envelope
from fedmq.party.identity.private_keys import KeyRing
from fedmq.party.identity.sealer import EndToEnd
from fedmq.transport.sealing.connection import Seal, pad
from fedmq.transport.sealing.keys import PrivateKeys
from fedmq.transport.sealing.noise import Initiator, respond
from tests.party.sealed_parties import envelope, shake_hands

BANK, TELCO = PrivateKeys.generate(), PrivateKeys.generate()
PINNED = {"bank": (BANK.public,), "telco": (TELCO.public,)}


class StolenAtTelco:
    """The bank's agreement key, as far as whoever has stolen telco's can use it."""

    def public_key(self) -> X25519PublicKey:
        return BANK.agree.public_key()

    def exchange(self, peer: X25519PublicKey) -> bytes:
        if peer.public_bytes_raw() == TELCO.public.agree:
            return TELCO.agree.exchange(self.public_key())
        return bytes(32)  # a guess


def bank() -> EndToEnd:
    return EndToEnd(KeyRing("bank", BANK), PINNED)


def telco() -> EndToEnd:
    return EndToEnd(KeyRing("telco", TELCO), PINNED)


def thief_as_the_bank() -> EndToEnd:
    agree = cast(X25519PrivateKey, StolenAtTelco())
    return EndToEnd(KeyRing("bank", PrivateKeys(BANK.sign, agree)), PINNED)


def test_nobody_can_pretend_to_its_owner_to_be_somebody_else() -> None:
    owner, thief = telco(), thief_as_the_bank()
    answers: list[bytes] = []
    owner.connect_by(lambda _, data: answers.append(data))
    owner.open(thief.offer("demo", "telco"))  # whoever has the key can begin
    with pytest.raises(Untrusted):  # but not read the answer
        thief.open(answers[0])
    assert not owner.connected("bank")


def test_nobody_can_speak_under_a_recorded_handshake() -> None:
    sender, owner = bank(), telco()
    shake_hands(sender, owner)
    recorded = sender.seal(envelope())
    owner.open(recorded)

    seal = unframe(recorded).seal
    assert seal is not None
    stamp = Seal.from_bytes(seal)._replace(counter=99).to_bytes()
    parts = pack(Envelope(envelope().header, Abort(reason="forged by the broker")))
    secret = TELCO.agree.exchange(BANK.agree.public_key())
    body = ChaCha20Poly1305(secret).encrypt(
        (99).to_bytes(12, "little"), pad(parts.body), parts.header + stamp
    )
    with pytest.raises(Untrusted):
        owner.open(frame(Parts(parts.header, body, stamp)))


def test_the_long_term_keys_of_both_do_not_open_what_was_recorded() -> None:
    recorded = []
    sender, owner = bank(), telco()
    shake_hands(sender, owner)
    recorded.append(sender.seal(envelope()))
    with pytest.raises(Stale, match="keys that telco does not have"):
        telco().open(recorded[0])

    offer = Initiator(b"", BANK.agree, TELCO.public.agree).offer()
    made, _ = respond(b"", TELCO.agree, BANK.public.agree, offer)
    again, _ = respond(b"", TELCO.agree, BANK.public.agree, offer)
    assert made.receive != again.receive  # the offer and all long-term keys do not make the keys

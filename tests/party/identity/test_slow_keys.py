"""Keys on a slow token: parties agree on keys, and the event loop waits for nothing."""

from __future__ import annotations

import asyncio

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedmq.party.identity.private_keys import KeyRing
from fedmq.party.identity.sealer import EndToEnd
from fedmq.transport.sealing.keys import PrivateKeys, SlowAgreementKey
from tests.party.sealed_parties import envelope
from tests.party.slow_token import SlowToken, keys_on

_SLOW_SECONDS = SlowToken().seconds


def joined(token: SlowToken, *, stranger: bool = False) -> dict[str, EndToEnd]:
    """The bank with its keys on ``token`` and telco; who is a ``stranger`` to the bank, if so."""
    rings = {
        "bank": KeyRing("bank", keys_on(token)),
        "telco": KeyRing("telco", PrivateKeys.generate()),
    }
    pinned = {party: (ring.current.public,) for party, ring in rings.items()}
    other = pinned | {"telco": (PrivateKeys.generate().public,)} if stranger else pinned
    both = {"bank": EndToEnd(rings["bank"], other), "telco": EndToEnd(rings["telco"], pinned)}
    loop = asyncio.get_running_loop()
    for party in both:
        both[party].connect_by(lambda to, data: loop.call_soon(both[to].open, data))
    return both


async def test_the_party_with_the_token_offers_and_the_loop_goes_on() -> None:
    token = SlowToken()
    both = joined(token)
    await both["bank"].ready(envelope().header, 60)
    assert token.waited == []
    assert both["telco"].open(both["bank"].seal(envelope())) == envelope()


async def test_the_party_with_the_token_answers_and_the_loop_goes_on() -> None:
    token = SlowToken()
    both = joined(token)
    await both["telco"].ready(envelope("telco", "bank").header, 60)
    assert token.waited == []
    sent = envelope("telco", "bank")
    assert both["bank"].open(both["telco"].seal(sent)) == sent


async def test_a_refusal_is_signed_and_the_loop_goes_on() -> None:
    token = SlowToken()
    both = joined(token, stranger=True)
    both["telco"].greet("demo")
    await asyncio.sleep(4 * _SLOW_SECONDS)
    assert "has not pinned the key that telco has" in both["telco"].refusals["bank"]
    assert token.waited == []
    await both["telco"].close()


async def test_a_token_that_fails_is_named_and_tried_again() -> None:
    token = SlowToken(broken=True)
    both = joined(token)
    both["bank"].greet("demo")
    await asyncio.sleep(3 * _SLOW_SECONDS)
    assert not both["bank"].connected("telco")
    token.broken = False
    await both["bank"].ready(envelope().header, 60)
    assert token.waited == []
    await both["bank"].close()


async def test_handshakes_beyond_what_waits_are_lost() -> None:
    """Somebody at the broker begins handshakes without end."""
    token = SlowToken()
    both = joined(token)
    offers = [both["telco"].offer("demo", "bank") for _ in range(100)]
    before = len(asyncio.all_tasks())
    for offer in offers:
        both["bank"].open(offer)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) - before <= 32
    await both["bank"].close()


async def test_two_handshakes_at_once_each_find_the_secret_that_was_made_for_them() -> None:
    token = SlowToken(0.02)
    keys, peer = keys_on(token), X25519PrivateKey.generate()
    assert isinstance(keys.agree, SlowAgreementKey)
    for _ in range(2):
        await asyncio.to_thread(keys.agree.prepare, peer.public_key().public_bytes_raw())
    secrets = [keys.agree.exchange(peer.public_key()) for _ in range(2)]
    assert secrets == [peer.exchange(keys.agree.public_key())] * 2
    assert token.waited == []

"""The connections of a party with one peer, and those it has offered: no I/O, no clock."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fedmq.errors import OfferRefused, Replayed, Untrusted
from fedmq.transport.sealing.connection import Connection, Recent
from fedmq.transport.sealing.keys import AgreementKey, PrivateKeys, PublicKeys
from fedmq.transport.sealing.noise import EPHEMERAL_BYTES, Initiator, respond

__all__ = ["ANSWER", "OFFER", "REFUSALS", "Handshakes", "agreements_of"]

REFUSALS = {
    1: "{peer} has not pinned the key that {party} has; compare its fingerprint there, "
    "then: fedmq keys trust",
    2: "{peer} no longer has the key that {party} has pinned for it; pin the new one here",
    3: "{peer} finds no proof of {party}'s key in what it sends",
}
"""By number, the text of a refusal for the party whose offer was refused."""

_OFFERED = 8
_ANSWERED = _HEARD = 1024
"""Offers that an earlier process answered pass as new ones, once each: so many push out an honest
one that waits for its first message. They are no fewer than those that are known to be repeated."""
_KEPT = 4
OFFER, ANSWER = "seal offer", "seal answer"
"""The kinds of the messages that carry a handshake."""
_OFFER = struct.Struct(">8s8s")
_NAME_BYTES = 16
_REFUSAL = struct.Struct(f">{_NAME_BYTES}sB64s")


@dataclass(frozen=True, slots=True)
class _Offered:
    initiator: Initiator
    peer: PublicKeys


@dataclass
class Handshakes:
    """The state between ``party`` and ``peer``."""

    party: str
    peer: str
    current: Connection | None = None
    """The connection to seal with."""
    kept: Recent[bytes, Connection] = field(default_factory=lambda: Recent(_KEPT))
    """Connections whose keys both sides have proved to hold, by id."""
    answered: Recent[bytes, Connection] = field(default_factory=lambda: Recent(_ANSWERED))
    """Connections whose offer may have been a repetition: no message has been opened under them."""
    _offered: Recent[bytes, _Offered] = field(default_factory=lambda: Recent(_OFFERED))
    _heard: Recent[bytes, None] = field(default_factory=lambda: Recent(_HEARD))

    def offer(self, federation: str, header: bytes, own: PrivateKeys, peer: PublicKeys) -> bytes:
        """The first message of a handshake, to the owner of ``peer``."""
        names = _OFFER.pack(own.public.id, peer.id)
        prologue = _prologue(
            federation, header + names, (self.party, own.public), (self.peer, peer)
        )
        initiator = Initiator(prologue, own.agree, peer.agree)
        body = initiator.offer()
        self._offered.put(_name(body), _Offered(initiator, peer))
        return names + body

    def answer(
        self,
        federation: str,
        header: bytes,
        body: bytes,
        own: Sequence[PrivateKeys],
        pinned: Sequence[PublicKeys],
        *,
        answer_header: bytes,
        release: str,
        now: float,
    ) -> bytes:
        """The second message, if ``body`` is the peer's first one, which says its ``release``.

        Raises:
            Untrusted: the body is cut short.
            OfferRefused: the peer's keys are not those pinned here, or are not proved.
            Replayed: the offer was answered before.
        """
        if len(body) < _OFFER.size + EPHEMERAL_BYTES:
            raise Untrusted("a handshake was cut short")
        signer, recipient = _OFFER.unpack_from(body)
        names, offer = body[: _OFFER.size], body[_OFFER.size :]
        peer = next((keys for keys in pinned if keys.id == signer), None)
        if peer is None:
            raise OfferRefused(
                1,
                f"{self.peer} seals with a key that is not pinned here; compare its fingerprint, "
                "then: fedmq keys trust",
            )
        keys = next((keys for keys in own if keys.public.id == recipient), None)
        if keys is None:
            raise OfferRefused(
                2,
                f"{self.peer} seals to a key that {self.party} no longer has; send it the new one",
            )
        name = _name(offer)
        prologue = _prologue(
            federation, header + names, (self.peer, peer), (self.party, keys.public)
        )
        try:
            made, message = respond(prologue, keys.agree, peer.agree, offer, answer_header)
        except Untrusted as error:
            raise OfferRefused(3, str(error)) from None
        if name in self._heard:
            raise Replayed("a handshake came twice")
        self._heard.put(name, None)
        connection = Connection(made, peer, now, release)
        self.answered.put(connection.id, connection)
        return name + message

    def finish(self, header: bytes, body: bytes, release: str, now: float) -> Connection:
        """The connection from the peer's answer, which says its ``release``; current from now on.

        Raises:
            Untrusted: the answer was altered, or answers no recent offer.
        """
        name, message = body[:_NAME_BYTES], body[_NAME_BYTES:]
        offered = self._offered.get(name)
        if offered is None:
            raise Untrusted(f"{self.peer} answers a handshake that {self.party} does not expect")
        keys, sealed_header = offered.initiator.finish(message)
        if sealed_header != header:
            raise Untrusted("a handshake was altered on its way")
        del self._offered[name]
        return self._take(Connection(keys, offered.peer, now, release))

    def confirmed(self, connection: Connection) -> bool:
        """Keep ``connection``: a message opened under it, so its handshake is no repetition.

        Whether that was not known before.
        """
        if self.answered.pop(connection.id, None) is None:
            return False
        self._take(connection)
        return True

    def find(self, connection: bytes) -> Connection | None:
        """The connection with that id."""
        return self.kept.get(connection) or self.answered.get(connection)

    def refusal(self, header: bytes, body: bytes, number: int, own: PrivateKeys) -> bytes:
        """The refusal of the offer in ``body``, under this party's signature."""
        name = _name(body[_OFFER.size :])
        signature = own.sign.sign(_refused(header, name, number))
        return _REFUSAL.pack(name, number, signature)

    def refused(self, header: bytes, body: bytes, pinned: Sequence[PublicKeys]) -> str:
        """The peer's reason for refusing an offer, in one line.

        Raises:
            Untrusted: the refusal concerns no recent offer.
        """
        if len(body) != _REFUSAL.size:
            raise Untrusted("a refusal was cut short")
        name, number, signature = _REFUSAL.unpack(body)
        if name not in self._offered or number not in REFUSALS:
            raise Untrusted(f"{self.peer} refuses what {self.party} has not offered")
        reason = REFUSALS[number].format(peer=self.peer, party=self.party)
        proved = any(keys.verifies(_refused(header, name, number), signature) for keys in pinned)
        return reason if proved else f"{reason} (sent under a key that is not pinned here)"

    def drop_unpinned(self, pinned: Sequence[PublicKeys]) -> None:
        """Seal nothing more to keys outside ``pinned``, and let no session begin with them."""
        for connection in (*self.kept.values(), *self.answered.values()):
            connection.unpinned = connection.peer not in pinned
        if self.current is not None and self.current.peer not in pinned:
            self.current = None
        for name in [name for name, offered in self._offered.items() if offered.peer not in pinned]:
            del self._offered[name]

    def drop_own(self) -> None:
        """Own keys have changed: running sessions go on, new ones need a new handshake."""
        for connection in (*self.kept.values(), *self.answered.values()):
            connection.outdated = True
        for name in list(self._offered):
            del self._offered[name]

    def _take(self, connection: Connection) -> Connection:
        self.kept.put(connection.id, connection)
        self.current = connection
        return connection


def agreements_of(
    kind: str, body: bytes, own: Sequence[PrivateKeys], pinned: Sequence[PublicKeys]
) -> Iterator[tuple[AgreementKey, bytes]]:
    """The agreements that a peer's handshake message takes: the ``own`` key, and the other half.

    ``pinned``: the peer's keys. Nothing for a message that is refused without any.
    """
    if kind == OFFER and len(body) >= _OFFER.size + EPHEMERAL_BYTES:
        signer, recipient = _OFFER.unpack_from(body)
        for keys in (keys for keys in own if keys.public.id == recipient):
            for peer in (peer for peer in pinned if peer.id == signer):
                yield keys.agree, body[_OFFER.size :][:EPHEMERAL_BYTES]
                yield keys.agree, peer.agree
    elif kind == ANSWER and len(body) >= _NAME_BYTES + EPHEMERAL_BYTES:
        yield own[0].agree, body[_NAME_BYTES:][:EPHEMERAL_BYTES]


def _name(offer: bytes) -> bytes:
    """The name of a handshake on both sides: a hash of the initiator's ephemeral key."""
    return hashlib.sha256(offer[:EPHEMERAL_BYTES]).digest()[:_NAME_BYTES]


def _prologue(federation: str, offer: bytes, *parties: tuple[str, PublicKeys]) -> bytes:
    """The data that both sides must agree on, each field after its length."""
    fields = [b"fedmq seals 2", federation.encode(), offer]
    for party, keys in parties:
        fields += [party.encode(), keys.sign, keys.agree]
    return b"".join(len(data).to_bytes(4, "big") + data for data in fields)


def _refused(header: bytes, name: bytes, number: int) -> bytes:
    return b"fedmq refusal 2" + name + bytes([number]) + header

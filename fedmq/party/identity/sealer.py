"""How does an envelope become bytes, and bytes an envelope?

Envelopes are sealed between their parties or, within one process, in the clear. Handshakes use
the lane that nothing delays.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from random import Random

import msgpack

from fedmq.errors import (
    ConfigError,
    FedmqError,
    LinkError,
    MessageError,
    OfferRefused,
    Stale,
    Untrusted,
)
from fedmq.messages.codec import (
    SEALED_VERSION,
    Parts,
    decode,
    encode,
    frame,
    pack,
    read_body,
    read_header,
    unframe,
)
from fedmq.messages.envelope import Envelope, Header
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.party import PartyFile
from fedmq.party.identity import private_keys
from fedmq.party.identity.handshakes import ANSWER, OFFER, Handshakes, agreements_of
from fedmq.party.identity.private_keys import KeyRing, Passphrase
from fedmq.transport.background_tasks import BackgroundTasks
from fedmq.transport.backoff import Backoff
from fedmq.transport.link import Link
from fedmq.transport.sealing.connection import Connection, Seal
from fedmq.transport.sealing.keys import (
    AgreementKey,
    LateSignature,
    PrivateKeys,
    PublicKeys,
    SlowAgreementKey,
)

__all__ = ["RELEASE", "Clear", "EndToEnd", "HandshakeSender", "Post", "Sealer", "sealer_of"]

log = logging.getLogger(__name__)

Post = Callable[[str, bytes], object]
"""Sends a handshake message to a party; it may be lost."""

_RENEWED_SECONDS = 24 * 3600.0
_OLD_SEAL_BYTES = 136
_HANDSHAKE = bytes([0])  # in place of the seal of other messages
_OFFER, _ANSWER, _REFUSAL, _CONFIRM = OFFER, ANSWER, "seal refusal", "seal confirm"
RELEASE = version("fedmq")
"""Of this installation."""

_SAYS = f" fedmq/{RELEASE}"
"""Ends the ids of offers and answers: this party's release. A header is bound to its handshake, and
older parties overread it."""
_SAID = re.compile(r" fedmq/([0-9A-Za-z.+-]{1,40})$")
_SELDOM_SECONDS = 1.0  # between two of the messages that a stranger can cause
_OFFERS_AGAIN = Backoff(first=0.2, limit=2.0)
"""An offer is a small message, and somebody may wait for a score when the other party is back."""
_MOST_WAITING = 32
"""Handshake messages that wait for slow keys at once; anybody at the broker can cause some."""
_HANDSHAKE_SECONDS = 4.0
"""For which a broker keeps a handshake: who comes back finds a few offers, all still expected."""


class Sealer(ABC):
    """Turns a party's envelopes into bytes, and arriving bytes into envelopes."""

    sealed: bool
    slow = False
    """Whether this party's keys compute elsewhere, as on a token."""

    @abstractmethod
    def seal(self, envelope: Envelope) -> bytes:
        """The bytes of an ``envelope`` from this party.

        Raises:
            LinkError: no keys are agreed on with the recipient yet; see ``ready``.
        """

    @abstractmethod
    def open(self, data: bytes) -> Envelope | None:
        """The envelope in ``data``, which this party received; None if it was a handshake.

        Raises:
            MessageError: the data are no message, or not for this party.
            Untrusted: the seal is invalid, or a required seal is missing.
            Stale: the message was sealed under keys that this party no longer has.
            Replayed: the message was opened before.
        """

    @abstractmethod
    def reload(self, newer: Sealer) -> None:
        """Seal with the keys of ``newer`` from now on; running sessions keep the keys they have.

        But even running sessions seal nothing more to a key that is no longer pinned.

        Raises:
            ConfigError: one of the two sealers seals, and the other does not.
        """

    @abstractmethod
    async def ready(self, header: Header, seconds: float | None = None) -> None:
        """Wait until keys are agreed on with the recipient of ``header``.

        Raises:
            LinkError: no keys are agreed on after ``seconds``; it quotes the last refusal.
        """

    async def seal_within(self, envelope: Envelope, seconds: float) -> bytes:
        """The bytes of ``envelope``, once keys are agreed on; errors as for ``ready``."""
        await self.ready(envelope.header, seconds)
        return self.seal(envelope)

    @abstractmethod
    def connect_by(self, post: Post) -> None:
        """Send handshakes through ``post``."""

    @abstractmethod
    def greet(self, federation: str) -> None:
        """Agree on keys with every other party, in the background."""

    def reconnected(self) -> None:  # noqa: B027 (there may be nothing to do)
        """Find out at once, after an outage of the link, with whom keys are to be agreed on."""

    @abstractmethod
    async def close(self) -> None:
        """End all background work."""

    @abstractmethod
    def sign(self, data: bytes) -> bytes:
        """This party's signature of ``data``; empty if parties have no keys.

        Takes as long as the key takes: off the event loop where the key may be slow.
        """

    def sign_later(self, data: bytes) -> bytes:
        """As ``sign``, but a slow key signs only before the message leaves: `LateSignature`."""
        return LateSignature(partial(self.sign, data)) if self.slow else self.sign(data)

    @abstractmethod
    def verifies(self, party: str, data: bytes, signature: bytes) -> bool:
        """Whether ``party`` signed ``data`` with a key that is pinned; true without keys."""

    @property
    def releases(self) -> Mapping[str, str]:
        """By party that keys are agreed on with, its release of fedmq; empty if it says none."""
        return {}

    @property
    def refusals(self) -> Mapping[str, str]:
        """By party, why nothing is sealed to it now, or why its last message was not opened."""
        return {}


class Clear(Sealer):
    """No seal: for parties in one process, for tests, and for policies that allow it."""

    sealed = False

    seal = staticmethod(encode)
    open = staticmethod(decode)

    def reload(self, newer: Sealer) -> None:
        if newer.sealed:
            raise ConfigError("there were no keys when the daemon started; restart it to seal")

    async def ready(self, header: Header, seconds: float | None = None) -> None:
        return None

    async def seal_within(self, envelope: Envelope, seconds: float) -> bytes:
        return encode(envelope)

    def connect_by(self, post: Post) -> None:
        return None

    def greet(self, federation: str) -> None:
        return None

    async def close(self) -> None:
        return None

    def sign(self, data: bytes) -> bytes:
        return b""

    def verifies(self, party: str, data: bytes, signature: bytes) -> bool:
        return True


class EndToEnd(Sealer):
    """Seals with this party's ``ring`` between it and the others' ``pinned`` keys.

    A party that is changing its keys has several pinned ones. The last one is used: the party
    made it before it was pinned. ``clock`` never jumps; the time of day plays no part.
    """

    sealed = True

    def __init__(
        self,
        ring: KeyRing,
        pinned: Mapping[str, Sequence[PublicKeys]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ring = ring
        self._federation: str | None = None
        self._pinned = pinned
        self._clock = clock
        self._peers = {
            party: Handshakes(ring.party, party) for party in pinned if party != ring.party
        }
        self._post: Post = lambda _, __: None
        self._numbers = itertools.count(1)
        self._refusals: dict[str, str] = {}
        self._releases: dict[str, str] = {}
        self._changes = _Changes()
        self._offering: set[str] = set()
        self._tasks = BackgroundTasks()
        self._seldom = _Seldom(clock)
        self._off_loop = _OffLoop(ring.party, self._tasks)
        self.slow = ring.current.slow

    @property
    def party(self) -> str:
        """The party that this sealer belongs to."""
        return self._ring.party

    @property
    def releases(self) -> Mapping[str, str]:
        return dict(self._releases)

    @property
    def refusals(self) -> Mapping[str, str]:
        return dict(self._refusals)

    def connect_by(self, post: Post) -> None:
        self._post = post

    def offer(self, federation: str, recipient: str) -> bytes:
        """The first message of a new handshake with ``recipient``."""
        _, packed = self._header(federation, recipient, _OFFER)
        pinned = self._pinned[recipient][-1]
        body = self._peers[recipient].offer(federation, packed, self._ring.current, pinned)
        return frame(Parts(packed, body, _HANDSHAKE))

    def connected(self, recipient: str) -> bool:
        """Whether messages to ``recipient`` can be sealed."""
        peer = self._peers.get(recipient)
        return peer is not None and peer.current is not None

    async def ready(self, header: Header, seconds: float | None = None) -> None:
        recipient = header.recipient
        peer = self._peers.get(recipient)
        if peer is None:
            raise LinkError(f"{recipient} is no other party of the federation")
        if peer.current is None or self._clock() - peer.current.made > _RENEWED_SECONDS:
            self._begin(header.federation, recipient)
        if peer.current is not None:
            return
        try:
            async with asyncio.timeout(seconds):
                while peer.current is None:
                    await self._changes.wait(recipient)
        except TimeoutError:
            raise self._unconnected(recipient) from None

    def greet(self, federation: str) -> None:
        self._federation = federation
        for party in self._peers:
            self._begin(federation, party)

    def reconnected(self) -> None:
        if self._federation is None:
            return
        for party, peer in self._peers.items():
            if party in self._offering:  # the next offer may be seconds away
                self._send_offer(self._federation, party)
            elif peer.current is not None:  # a party that has lost these keys offers new ones
                self._confirm(self._federation, party, peer.current)

    async def close(self) -> None:
        self._tasks.cancel()

    def sign(self, data: bytes) -> bytes:
        return self._ring.current.sign.sign(data)

    def verifies(self, party: str, data: bytes, signature: bytes) -> bool:
        return any(key.verifies(data, signature) for key in self._pinned.get(party, ()))

    def seal(self, envelope: Envelope) -> bytes:
        header = envelope.header
        peer = self._peers.get(header.recipient)
        if peer is None or peer.current is None:
            raise self._unconnected(header.recipient)
        parts = pack(envelope)
        return _sealed(peer.current, header, parts.header, parts.body)

    def open(self, data: bytes) -> Envelope | None:
        parts = unframe(data)
        if parts.seal == _HANDSHAKE:
            header = _read_header(parts.header, self._ring.party)
            pinned = self._pinned.get(header.sender, ())
            agreements = agreements_of(header.kind, parts.body, self._ring.all, pinned)
            self._off_loop.agreed(list(agreements), lambda: self._take(parts))
            return None
        if parts.seal is not None and len(parts.seal) == _OLD_SEAL_BYTES:
            sender = read_header(parts.header).sender
            reason = f"{sender} has an older fedmq: bring all parties to the same fedmq version"
            if sender in self._peers:
                self._note(sender, reason)
            raise Untrusted(reason)
        header = _read_header(parts.header, self._ring.party)
        if parts.seal is None:
            raise Untrusted(f"message {header.id!r} is not sealed")
        seal = Seal.from_bytes(parts.seal)
        peer = self._peers.get(header.sender)
        connection = None if peer is None else peer.find(seal.connection)
        if peer is None or connection is None:
            if peer is not None and self._seldom(header.sender, _OFFER):
                self._send_offer(header.federation, header.sender)
            raise Stale(
                f"message {header.id!r} of {header.sender} is sealed under keys that "
                f"{self._ring.party} does not have, as before a restart; they agree on new ones"
            )
        body = connection.open(parts.header, parts.body, seal, _session(header))
        if peer.confirmed(connection):  # so its offer was no repetition
            self._releases[header.sender] = connection.release
        self._refusals.pop(header.sender, None)
        self._changes.announce(header.sender)
        if header.kind == _CONFIRM:
            return None
        return Envelope(header, read_body(header, body))

    def reload(self, newer: Sealer) -> None:
        if not isinstance(newer, EndToEnd):
            raise ConfigError("the federation file holds no keys any more; restart without seals")
        changed = newer._ring.current.public != self._ring.current.public
        self._ring, self._pinned, self.slow = newer._ring, newer._pinned, newer.slow
        for party in self._peers.keys() - self._pinned.keys():
            del self._peers[party]  # its messages are refused from now on
        for party in self._pinned.keys() - self._peers.keys() - {self.party}:
            self._peers[party] = Handshakes(self.party, party)
            if self._federation is not None:
                self._begin(self._federation, party)
        for party, peer in self._peers.items():
            peer.drop_unpinned(self._pinned[party])
            if changed:
                peer.drop_own()
        if changed and self._federation is not None:
            self.greet(self._federation)
        self._refusals.clear()

    def _take(self, parts: Parts) -> None:
        """Take a handshake message, and send the resulting ones."""
        header = _read_header(parts.header, self._ring.party)
        sender = header.sender
        peer = self._peers.get(sender)
        if peer is None or header.version != SEALED_VERSION:
            raise Untrusted(f"{sender} is no other party of the federation")
        try:
            if header.kind == _OFFER:
                self._answer(peer, header, parts)
            elif header.kind == _ANSWER:
                release = _release(header)
                connection = peer.finish(parts.header, parts.body, release, self._clock())
                self._releases[sender] = release
                self._refusals.pop(sender, None)
                self._changes.announce(sender)
                self._confirm(header.federation, sender, connection)
            elif header.kind == _REFUSAL:
                self._note(sender, peer.refused(parts.header, parts.body, self._pinned[sender]))
            else:
                raise Untrusted(f"message {header.id!r} is not sealed")
        except OfferRefused as error:
            self._note(sender, str(error))
            if self._seldom(sender, _REFUSAL):
                _, packed = self._header(header.federation, sender, _REFUSAL)
                own, number = self._ring.current, error.number

                self._off_loop.signed(
                    own,
                    lambda: peer.refusal(packed, parts.body, number, own),
                    lambda body: self._post(sender, frame(Parts(packed, body, _HANDSHAKE))),
                )
            raise Untrusted(str(error)) from None

    def _send_offer(self, federation: str, recipient: str) -> None:
        def post() -> None:
            if recipient in self._peers:  # it may have left meanwhile
                self._post(recipient, self.offer(federation, recipient))

        pinned = self._pinned[recipient][-1].agree
        self._off_loop.agreed([(self._ring.current.agree, pinned)], post)

    def _confirm(self, federation: str, recipient: str, connection: Connection) -> None:
        """Show that this party holds the keys of ``connection``."""
        header, packed = self._header(federation, recipient, _CONFIRM)
        self._post(recipient, _sealed(connection, header, packed, b""))

    def _note(self, party: str, refusal: str) -> None:
        if self._refusals.get(party) != refusal:
            log.warning("%s: %s", self.party, refusal)
        self._refusals[party] = refusal

    def _answer(self, peer: Handshakes, header: Header, parts: Parts) -> None:
        _, packed = self._header(header.federation, header.sender, _ANSWER)
        body = peer.answer(
            header.federation,
            parts.header,
            parts.body,
            self._ring.all,
            self._pinned[header.sender],
            answer_header=packed,
            release=_release(header),
            now=self._clock(),
        )
        self._post(header.sender, frame(Parts(packed, body, _HANDSHAKE)))

    def _header(self, federation: str, recipient: str, kind: str) -> tuple[Header, bytes]:
        says = _SAYS if kind in (_OFFER, _ANSWER) else ""
        header = Header.unsequenced(
            f"{kind}/{self._ring.party}/{recipient}/{next(self._numbers)}{says}",
            federation=federation,
            session="seals",
            attempt=1,
            sender=self._ring.party,
            recipient=recipient,
            kind=kind,
        ).model_copy(update={"version": SEALED_VERSION})
        return header, bytes(msgpack.packb(header.model_dump()))

    def _unconnected(self, recipient: str) -> LinkError:
        why = self._refusals.get(recipient, f"{recipient} has not answered")
        return LinkError(f"no keys are agreed on with {recipient} yet: {why}")

    def _begin(self, federation: str, recipient: str) -> None:
        if recipient not in self._offering:
            self._offering.add(recipient)
            self._tasks.spawn(self._offer_until_answered(federation, recipient))

    async def _offer_until_answered(self, federation: str, recipient: str) -> None:
        peer = self._peers[recipient]
        before = peer.current
        try:
            for delay in _OFFERS_AGAIN.delays(Random()):
                if self._peers.get(recipient) is not peer:  # it has left the federation
                    return
                self._send_offer(federation, recipient)
                try:
                    async with asyncio.timeout(delay):
                        while peer.current is before or peer.current is None:
                            await self._changes.wait(recipient)
                except TimeoutError:
                    continue
                return
        finally:
            self._offering.discard(recipient)


class _Seldom:
    """Whether the last time was long ago enough; a yes counts as the new last time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._said: dict[tuple[str, str], float] = {}

    def __call__(self, party: str, kind: str) -> bool:
        now, key = self._clock(), (party, kind)
        if now - self._said.get(key, -_SELDOM_SECONDS) < _SELDOM_SECONDS:
            return False
        self._said[key] = now
        return True


class _OffLoop:
    """Has keys on a token work in threads, as they may be slow; others work at once."""

    def __init__(self, party: str, tasks: BackgroundTasks) -> None:
        self._party = party
        self._tasks = tasks
        self._waiting = 0
        """Handshake messages that wait for slow keys."""

    def agreed(
        self, agreements: Sequence[tuple[AgreementKey, bytes]], then: Callable[[], object]
    ) -> None:
        """Call ``then`` once slow keys among ``agreements`` have agreed: each key, and with whom.

        Beyond so many that wait it is not called: a lost handshake is begun again.
        """
        slow = [(key, peer) for key, peer in agreements if isinstance(key, SlowAgreementKey)]
        if not slow:
            then()
        elif self._waiting < _MOST_WAITING:
            self._waiting += 1

            async def later() -> None:
                try:
                    for key, peer in slow:
                        await asyncio.to_thread(key.prepare, peer)
                    then()
                except FedmqError as error:
                    log.warning("%s: a handshake comes to nothing: %s", self._party, error)
                finally:
                    self._waiting -= 1

            self._tasks.spawn(later())

    def signed(
        self, own: PrivateKeys, sign: Callable[[], bytes], then: Callable[[bytes], object]
    ) -> None:
        """Call ``then`` with what ``sign`` makes by ``own`` keys."""

        async def later() -> None:
            try:
                then(await asyncio.to_thread(sign))
            except FedmqError as error:
                log.warning("%s: no refusal is signed: %s", self._party, error)

        if own.slow:
            self._tasks.spawn(later())
        else:
            then(sign())


def _sealed(connection: Connection, header: Header, packed: bytes, body: bytes) -> bytes:
    stream = 1 if header.sequence else 0
    sealed, seal = connection.seal(packed, body, stream, _session(header))
    return frame(Parts(packed, sealed, seal))


def _release(header: Header) -> str:
    """What the sender of an offer or answer says of itself."""
    said = _SAID.search(header.id)
    return said[1] if said else ""


def _read_header(data: bytes, recipient: str) -> Header:
    header = read_header(data, sealed=True)
    if header.recipient != recipient:
        raise MessageError(f"message {header.id!r} is for {header.recipient}")
    return header


class _Changes:
    """Lets tasks wait until the keys that are agreed on with a party change."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {}

    async def wait(self, party: str) -> None:
        await self._events.setdefault(party, asyncio.Event()).wait()

    def announce(self, party: str) -> None:
        event = self._events.pop(party, None)
        if event is not None:
            event.set()


def _session(header: Header) -> tuple[str, int]:
    return header.session, header.attempt


def sealer_of(
    config: PartyFile,
    federation: Federation,
    passphrase: Passphrase = private_keys.passphrase_from_environment,
) -> Sealer:
    """The sealer for a party's files.

    Raises:
        ConfigError: the federation has no keys and the policy forbids that; or this party's
            private keys cannot be read, or do not match its public ones.
    """
    if not federation.keys:
        if config.policy.allow_unsealed:
            return Clear()
        raise ConfigError(
            f"{config.federation}: it pins no keys of the parties, so the broker could read "
            "all messages; make keys with: fedmq keys new, or set policy.allow_unsealed = "
            "true"
        )
    asked = private_keys.passphrase_from(config.keys_passphrase, passphrase)
    ring = private_keys.read(config.keys, config.party, asked)
    pinned = {party: federation.pinned(party) for party in federation.parties}
    if ring.current.public not in pinned[config.party]:
        raise ConfigError(
            f"{config.federation}: keys.{config.party}: these are not the keys in {config.keys}; "
            "the other parties would refuse every message (see: fedmq keys show)"
        )
    return EndToEnd(ring, pinned)


class HandshakeSender:
    """Sends handshakes over ``link``; a party that misses an answer offers a new handshake."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._numbers = itertools.count(1)
        self._tasks = BackgroundTasks()

    def send(self, recipient: str, data: bytes) -> None:
        """Send ``data`` in the background."""
        self._tasks.spawn(self._post(recipient, data))

    async def _post(self, recipient: str, data: bytes) -> None:
        number = f"seals/{self._link.party}/{next(self._numbers)}"
        try:
            await self._link.post(recipient, data, message_id=number, expires=_HANDSHAKE_SECONDS)
        except LinkError as error:
            log.debug("%s: no handshake was sent to %s: %s", self._link.party, recipient, error)

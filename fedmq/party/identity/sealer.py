"""Envelopes to bytes and back, sealed between their parties or, in one process, in the clear."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from fedmq.errors import ConfigError, MessageError, Untrusted
from fedmq.messages.codec import Parts, decode, encode, frame, pack, read_body, read_header, unframe
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.online import OnlineHop, OnlineRows
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.party import PartyFile
from fedmq.party.identity import private_keys
from fedmq.party.identity.private_keys import KeyRing, Passphrase
from fedmq.transport.sealing.keys import PublicKeys
from fedmq.transport.sealing.seal import LONGEST_DELAY, Channel, Incoming, Introduction, Outgoing

__all__ = ["Clear", "EndToEnd", "Sealer", "sealer_of"]

_CLOCK_SKEW = 3600
_RENEWED = 24 * 3600
_CHANNELS = 4096

# Sessions that were opened are recorded on disk, questions for scores are not. So a daemon refuses
# questions that were sealed before it started, and the asking party introduces itself again often.
_QUESTIONS = (OnlineHop.kind, OnlineRows.kind)
_RENEWED_TO_ASK = 2

K = TypeVar("K")
V = TypeVar("V")


class Sealer(ABC):
    """How a party's envelopes become bytes, and bytes that arrive become envelopes."""

    sealed: bool

    @abstractmethod
    def seal(self, envelope: Envelope) -> bytes:
        """The bytes of ``envelope``, which this party sends."""

    @abstractmethod
    def open(self, data: bytes) -> Envelope:
        """The envelope in ``data``, which this party received.

        Raises:
            MessageError: it is no message, or not for this party.
            Untrusted: its seal does not hold, or there is none where one is needed.
            Replayed: it was opened before.
        """

    @abstractmethod
    def reload(self, newer: Sealer) -> None:
        """Seal with the keys of ``newer`` from now on; running sessions keep the keys they have.

        But nothing more is sealed to a key that is no longer pinned, also in running sessions.

        Raises:
            ConfigError: one of the two seals, and the other does not.
        """


class Clear(Sealer):
    """No seal: for parties in one process, for tests, and where a policy allows it."""

    sealed = False

    def seal(self, envelope: Envelope) -> bytes:
        return encode(envelope)

    def open(self, data: bytes) -> Envelope:
        return decode(data)

    def reload(self, newer: Sealer) -> None:
        if newer.sealed:
            raise ConfigError("there were no keys when the daemon started; restart it to seal")


class EndToEnd(Sealer):
    """Seals with this party's ``ring`` between it and the others' ``pinned`` keys.

    A party that is changing its keys has several pinned ones. The last one is used: the party has
    made it before it was pinned.
    """

    sealed = True

    def __init__(
        self,
        ring: KeyRing,
        pinned: Mapping[str, Sequence[PublicKeys]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ring = ring
        self._pinned = pinned
        self._clock = clock
        self._since = int(clock())
        self._outgoing: _Recent[Channel, Outgoing] = _Recent(_CHANNELS)
        self._incoming: _Recent[tuple[Channel, bytes], Incoming] = _Recent(_CHANNELS)

    def seal(self, envelope: Envelope) -> bytes:
        channel = _channel(envelope.header)
        seal = self._outgoing.get(channel)
        now = int(self._clock())
        # A long session introduces itself again: a peer that restarts would refuse an old one.
        good_for = _RENEWED_TO_ASK if envelope.header.kind in _QUESTIONS else _RENEWED
        if seal is None or now - seal.issued > good_for:
            peer = self._pinned[channel.recipient][-1]
            seal = Outgoing(channel, self._ring.current, peer, now)
            self._outgoing.put(channel, seal)
        parts = pack(envelope)
        body, stamp = seal.seal(parts.header, parts.body)
        return frame(Parts(parts.header, body, stamp))

    def open(self, data: bytes) -> Envelope:
        parts = unframe(data)
        header = read_header(parts.header)
        if header.recipient != self._ring.party:
            raise MessageError(f"message {header.id!r} is for {header.recipient}")
        if parts.seal is None:
            raise Untrusted(f"message {header.id!r} is not sealed")
        channel, introduction = _channel(header), Introduction.from_seal(parts.seal)
        key = channel, introduction.to_bytes()
        incoming = self._incoming.get(key)
        known = incoming is not None
        if incoming is None:
            self._check_age(header, introduction)
            pinned = self._pinned.get(header.sender, ())
            incoming = Incoming(channel, self._ring.all, pinned, introduction)
        body = incoming.open(parts.header, parts.body, parts.seal)
        if not known:
            self._incoming.put(key, incoming)
        return Envelope(header, read_body(header, body))

    def reload(self, newer: Sealer) -> None:
        # Sessions under way have derived their keys already; both caches hold those.
        if not isinstance(newer, EndToEnd):
            raise ConfigError("the federation file holds no keys any more; restart without seals")
        if newer._pinned.keys() != self._pinned.keys():
            raise ConfigError("the federation has other parties than before; restart for that")
        self._ring, self._pinned = newer._ring, newer._pinned
        for channel, seal in list(self._outgoing.items()):
            if seal.peer not in self._pinned[channel.recipient]:
                del self._outgoing[channel]

    def _check_age(self, header: Header, introduction: Introduction) -> None:
        age = self._clock() - introduction.issued
        if not -_CLOCK_SKEW <= age <= LONGEST_DELAY:
            raise Untrusted(
                f"message {header.id!r} was sealed {age / 3600:.1f} h ago, if the clocks of "
                f"{header.sender} and {header.recipient} agree; it is refused"
            )
        if header.kind in _QUESTIONS and not (
            introduction.issued >= self._since and age <= _CLOCK_SKEW
        ):
            raise Untrusted(
                f"question {header.id!r} was sealed {age:.0f} s ago, before this daemon was "
                f"started, if the clocks of {header.sender} and {header.recipient} agree; refused"
            )


class _Recent(OrderedDict[K, V]):
    """The ``most`` entries used last, so that no peer can fill the memory."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def get(self, key: K, default: V | None = None) -> V | None:  # type: ignore[override]
        if key in self:
            self.move_to_end(key)
        return super().get(key, default)

    def put(self, key: K, value: V) -> None:
        self[key] = value
        if len(self) > self._most:
            self.popitem(last=False)


def _channel(header: Header) -> Channel:
    return Channel(
        header.federation, header.session, header.attempt, header.sender, header.recipient
    )


def sealer_of(
    config: PartyFile,
    federation: Federation,
    passphrase: Passphrase = private_keys.passphrase_from_environment,
) -> Sealer:
    """The sealer that fits a party's files.

    Raises:
        ConfigError: the federation has no keys, and the policy does not allow that; or this party's
            private keys cannot be read, or do not fit its public ones.
    """
    if not federation.keys:
        if config.policy.allow_unsealed:
            return Clear()
        raise ConfigError(
            f"{config.federation}: no keys of the parties are in it, so the broker could read all "
            "messages; make keys with: fedmq keys new, or set policy.allow_unsealed = true"
        )
    ring = private_keys.read(config.keys, config.party, passphrase)
    pinned = {party: federation.pinned(party) for party in federation.parties}
    if ring.current.public not in pinned[config.party]:
        raise ConfigError(
            f"{config.federation}: keys.{config.party}: these are not the keys in {config.keys}; "
            "the other parties would refuse every message (see: fedmq keys show)"
        )
    return EndToEnd(ring, pinned)

"""A party's dead letters: the broker keeps them; this module keeps the reasons.

No party may publish under another's name, so no letter can return to its queue. Instead, the
party's own daemon takes the letter again.
"""

from __future__ import annotations

import hashlib
import json
import logging
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fedmq.errors import DaemonError, DataError, MessageError
from fedmq.messages.codec import read_header, unframe
from fedmq.party.atomic_file import write_atomically
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.party import PartyFile
from fedmq.party.operations.broker import BrokerAccess
from fedmq.transport.link import Delivery
from fedmq.transport.rabbitmq.address import BrokerAddress
from fedmq.transport.rabbitmq.connection import BrokerConnection, Received
from fedmq.transport.rabbitmq.topology import dead_queue_name

__all__ = ["DeadLetter", "DeadLetterBox", "DeadLetterNotes", "Redelivery", "letter_id"]

log = logging.getLogger(__name__)

_NOTES_KEPT = 5000
_MOST_LETTERS = 10_000


def letter_id(body: bytes) -> str:
    """The letter's displayed id: senders choose message ids, so those may repeat."""
    return hashlib.sha256(body).hexdigest()[:12]


class DeadLetterNotes:
    """A file with one line per refused message, the newest last; old lines are removed."""

    def __init__(self, state: Path) -> None:
        self._path = state / "dead-letters.jsonl"
        self._lines: int | None = None

    def add(self, delivery: Delivery, reason: str) -> None:
        """Record why ``delivery`` was refused; a full disk is only logged."""
        note = {
            "letter": letter_id(delivery.body),
            "at": datetime.now().astimezone().isoformat(timespec="seconds"),
            "reason": reason,
        }
        try:
            if self._lines is None or self._lines > 2 * _NOTES_KEPT:
                self._shorten()
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(note) + "\n")
        except OSError as error:
            log.warning("%s: cannot be written: %s", self._path, error.strerror)
        else:
            self._lines = (self._lines or 0) + 1

    def all(self) -> dict[str, dict[str, str]]:
        """The last note on each letter."""
        if not self._path.exists():
            return {}
        lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        return {note["letter"]: note for note in map(_parsed, lines) if note}

    def _shorten(self) -> None:
        kept: list[str] = []
        if self._path.exists():
            kept = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
            kept = kept[-_NOTES_KEPT:]
        write_atomically(self._path, "".join(line + "\n" for line in kept if _parsed(line)))
        self._lines = len(kept)


def _parsed(line: str) -> dict[str, str] | None:
    try:
        note = json.loads(line)
        return note if isinstance(note, dict) and "letter" in note else None
    except ValueError:
        return None  # cut short when the machine went down


@dataclass(frozen=True)
class DeadLetter:
    """A letter in the dead queue. Its header is readable, but not authenticated.

    ``received``: every message of the queue with this very body.
    """

    id: str
    reason: str
    at: str
    size: int
    header: Mapping[str, Any] | None
    received: list[Received]

    @property
    def sender(self) -> str:
        """The sender, as the broker authenticated it at publishing."""
        return self.received[0].routing_key.partition(".")[0]

    def described(self) -> dict[str, Any]:
        """The letter as plain data, without its body."""
        return {
            "letter": self.id,
            "reason": self.reason,
            "at": self.at,
            "bytes": self.size,
            "sender": self.sender,
            "header": self.header,
        }

    def request(self) -> dict[str, Any]:
        """The request to the daemon to take the letter once more."""
        return {
            "do": "redeliver",
            "body": b64encode(self.received[0].body).decode(),
            "message_id": self.received[0].message_id,
            "sender": self.sender,
        }


class DeadLetterBox:
    """The dead queue, while the connection is open; letters that are not dropped stay in it."""

    def __init__(self, connection: BrokerConnection, queue: str, notes: DeadLetterNotes) -> None:
        self._connection = connection
        self._queue = queue
        self._notes = notes.all()

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, config: PartyFile, federation: Federation
    ) -> AsyncIterator[DeadLetterBox]:
        """Connect as the party; LinkError where that fails."""
        access = BrokerAccess.of(config)
        access.check_owner(config)
        connection = await BrokerConnection.open(
            BrokerAddress.parse(access.url), f"fedmq dead {config.party}", access.ssl_context
        )
        try:
            queue = dead_queue_name(federation.name, config.party)
            yield cls(connection, queue, DeadLetterNotes(config.state))
        finally:
            await connection.close()

    async def letters(self, wanted: frozenset[str] | None = None) -> list[DeadLetter]:
        """The letters, each once, the oldest first; all, or the ``wanted`` ones.

        Raises:
            DataError: a wanted letter is not there.
        """
        found: dict[str, DeadLetter] = {}
        for _ in range(_MOST_LETTERS):
            received = await self._connection.take(self._queue)
            if received is None:
                break
            name = letter_id(received.body)
            if name in found:
                found[name].received.append(received)
            elif wanted is None or name in wanted:
                found[name] = self._described(name, received)
        lacking = (wanted or frozenset()) - found.keys()
        if lacking:
            raise DataError(f"there is no dead letter {min(lacking)}; see: fedmq dead list")
        return list(found.values())

    async def drop(self, letter: DeadLetter) -> None:
        """Remove a letter for good."""
        for received in letter.received:
            await received.settle(accept=True)

    def _described(self, name: str, received: Received) -> DeadLetter:
        try:
            header = read_header(unframe(received.body).header, sealed=True).model_dump()
        except MessageError:
            header = None
        note = self._notes.get(name, {})
        reason = note.get("reason") or f"the broker says: {received.death or 'nothing'}"
        return DeadLetter(name, reason, note.get("at", ""), len(received.body), header, [received])


@dataclass
class Redelivery:
    """A dead letter redelivered to the daemon; the box settles it, not the broker."""

    body: bytes
    message_id: str
    sender: str

    @classmethod
    def from_request(cls, request: Mapping[str, Any]) -> Redelivery:
        """Raises DaemonError when the request holds no letter."""
        try:
            body = b64decode(request["body"], validate=True)
            return cls(body, str(request["message_id"]), str(request["sender"]))
        except (KeyError, ValueError, TypeError) as error:
            raise DaemonError(f"that is no dead letter: {error}") from None

    def delivery(self) -> Delivery:
        """The letter as a delivery."""
        return Delivery(
            self.body, self.message_id, self.sender, "training", True, self.ack, self.dead_letter
        )

    async def ack(self) -> None:
        """Record that the daemon took or dropped the letter."""

    async def dead_letter(self, reason: str) -> None:
        """Record that the daemon refused the letter again."""

"""Everything fedmq raises on purpose, in one tree.

An error ends the CLI with its exit code, and a request over HTTP with its status. An error without
figures has its parent's::

                                  exit  HTTP
    FedmqError                       1   500  a fault inside fedmq
    ├── ConfigError                  3   400  a configuration, parameter or job file is wrong
    ├── DataError                    4   422  a table, a label or an id is wrong
    │   ├── SourceAway                        a file or a database cannot be read, perhaps only now
    │   ├── UnknownModel                      there is no model of that name
    │   └── TooManyRows                  413  more rows in one request than are taken
    ├── LinkError                    5   503  the broker, or a Dask scheduler, is away or refuses
    │   ├── Unroutable                        no queue stands behind the recipient's name
    │   └── Oversized                         a message is larger than a transport carries
    ├── SessionError                 6        a session ended without a result
    │   ├── Refused                      403  a party declined to take part
    │   │   ├── PartyLeft                409  a model needs a party that has left the federation
    │   │   ├── OldState                      its saved trees are older than a crash can leave them
    │   │   └── AnswerRefused            503  a party does not answer a question about a score
    │   │       ├── RateLimited               it was asked more than its owner allows
    │   │       └── RowsUnavailable           its rows cannot be read now
    │   ├── Aborted                           a party gave up in the middle
    │   ├── PeerSilent                   504  a party did not answer in time
    │   │   └── PeerAway                 503  it has been silent, so nobody waited for it
    │   ├── Overloaded                   429  too much is asked at once; ask again later
    │   └── Inexact                           a number is not certain to be exact
    ├── Inconsistent                10        a session ended: a party said what cannot be true
    ├── DaemonError                  7   409  no daemon answers, or it answers in error
    │   └── DaemonAway                        no daemon listens, or it stopped before its answer
    ├── MessageError                 8        bytes that are no message of this protocol version
    │   ├── Untrusted                         its seal does not hold: forged or altered
    │   │   └── OfferRefused                  a handshake under keys that are not taken here
    │   ├── Unreadable                        its body is none that this fedmq knows
    │   ├── Replayed                          it was taken before, and is not taken twice
    │   └── Stale                             it was sealed under keys that are gone
    ├── ProtocolError                9        an event that is illegal in this state
    └── Alarm                       11        all is done, and its owner should look at what it says

A message names the party, file, row, column or key, and what to do next.
It never carries another party's data.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

__all__ = [
    "Aborted",
    "Alarm",
    "AnswerRefused",
    "ConfigError",
    "DaemonAway",
    "DaemonError",
    "DataError",
    "FedmqError",
    "Inconsistent",
    "Inexact",
    "LinkError",
    "MessageError",
    "OfferRefused",
    "OldState",
    "Overloaded",
    "Oversized",
    "PartyLeft",
    "PeerAway",
    "PeerSilent",
    "ProtocolError",
    "RateLimited",
    "Refused",
    "Replayed",
    "RowsUnavailable",
    "SessionError",
    "SourceAway",
    "Stale",
    "TooManyRows",
    "UnknownModel",
    "Unreadable",
    "Unroutable",
    "Untrusted",
    "error_of_status",
    "raised_in_words",
]


class FedmqError(Exception):
    """Base of all errors that fedmq raises on purpose.

    ``exit_code`` is what the CLI ends with, ``http_status`` what a request over HTTP ends with.
    """

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500


class ConfigError(FedmqError):
    """A configuration, parameter or job file is wrong; the message names file and key."""

    exit_code = 3
    http_status = 400


class DataError(FedmqError):
    """A table, a label or an id is wrong; the message names file, row or column."""

    exit_code = 4
    http_status = 422


class SourceAway(DataError):
    """A table's file cannot be opened, or its database does not answer: perhaps only for now."""


class UnknownModel(DataError, KeyError):
    """There is no model of that name; also a KeyError, so that ``in`` and ``get`` work."""

    __str__ = Exception.__str__


class TooManyRows(DataError):
    """More rows are asked for in one request than its service takes."""

    http_status = 413


class LinkError(FedmqError):
    """The broker, or a Dask scheduler, cannot be reached, or refuses what was asked of it."""

    exit_code = 5
    http_status = 503


class Unroutable(LinkError):
    """No queue stands behind the recipient's name."""


class Oversized(LinkError):
    """A message is larger than the transport carries."""


class SessionError(FedmqError):
    """A session ended without a result."""

    exit_code = 6


class Refused(SessionError):
    """A party declined to take part; the message names it and gives its reason."""

    http_status = 403


class PartyLeft(Refused):
    """A model needs a party that has left the federation; the message names it."""

    http_status = 409


class OldState(Refused):
    """A party's saved trees are older than a crash can leave them; the message names it."""


class AnswerRefused(Refused):
    """A party does not answer a question about a score; the message names its reason.

    ``parties``: those that were asked in vain.
    """

    http_status = 503

    def __init__(self, reason: str, parties: Iterable[str] = ()) -> None:
        super().__init__(reason)
        self.parties = frozenset(parties)


class RateLimited(AnswerRefused):
    """A question that goes beyond the limits of the owner who is asked.

    ``cause``: too many rows or scores (``rate``), or too much about one person (``records``).
    """

    def __init__(self, cause: Literal["rate", "records"], reason: str) -> None:
        super().__init__(reason)
        self.cause: Literal["rate", "records"] = cause


class RowsUnavailable(AnswerRefused):
    """A party's rows cannot be read now, or not in time."""


class Aborted(SessionError):
    """A party gave up in the middle; the message names it and gives its reason."""


class Inconsistent(FedmqError):
    """A party said what cannot be true; the message names it, and what did not hold.

    ``evidence`` is for this party's own audit log: numbers that nobody else needs to know, and
    never labels. ``proof``: what convinces others, if there is such a thing.
    """

    exit_code = 10

    def __init__(
        self, party: str, what: str, evidence: Mapping[str, int | str], proof: bytes = b""
    ) -> None:
        super().__init__(f"{party}: {what}")
        self.party = party
        self.what = what
        self.evidence = evidence
        self.proof = proof


class PeerSilent(SessionError):
    """A party did not answer within the retry policy; ``parties``: those that were asked."""

    http_status = 504

    def __init__(self, reason: str, parties: Iterable[str] = ()) -> None:
        super().__init__(reason)
        self.parties = frozenset(parties)


class PeerAway(PeerSilent):
    """A party has not answered for a while, so nobody waited for it."""

    http_status = 503


class Overloaded(SessionError):
    """More is asked at once than can be answered in time; ask again later."""

    http_status = 429


class Inexact(SessionError):
    """A product that is not within 1/4 of integers: this machine's float64 is not IEEE's.

    Or a hidden sum that errors of encryption leave in doubt, one of 2^36.
    """


class DaemonError(FedmqError):
    """No daemon answers on the control socket, or it answers in error."""

    exit_code = 7
    http_status = 409


class DaemonAway(DaemonError):
    """No daemon listens, or it stopped before it had answered."""


class MessageError(FedmqError):
    """Bytes that are no message of this protocol version."""

    exit_code = 8


class Untrusted(MessageError):
    """A message whose seal does not hold: forged, altered, re-addressed, or of an unknown key."""


class OfferRefused(Untrusted):
    """A handshake's offer is refused; ``number`` tells its sender why."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number


class Unreadable(MessageError):
    """A message with a body that this fedmq does not know, as of a newer one.

    ``header``: its `fedmq.messages.envelope.Header`, which was read.
    """

    def __init__(self, header: Any, reason: str) -> None:
        super().__init__(reason)
        self.header = header


class Replayed(MessageError):
    """A message that was taken before; it changes nothing a second time."""


class Stale(MessageError):
    """A message under keys that are gone, as from before a restart; its sender seals it anew."""


class ProtocolError(FedmqError):
    """An event that is illegal in the machine's state; the state is left as it was."""

    exit_code = 9


class Alarm(FedmqError):
    """What was asked for is done, and its owner should look at what it says."""

    exit_code = 11


def error_of_status(http_status: int) -> type[FedmqError]:
    """The class that a client raises where a request for scores ended with ``http_status``.

    A status stands for several classes: the one that says what the caller can do. `DataError`:
    change the request. `Overloaded`: ask again later. `PeerSilent`: a party gives no answer now.
    `DaemonError`: all the rest.
    """
    return _RAISED_BY_CLIENTS.get(http_status, DaemonError)


_RAISED_BY_CLIENTS: dict[int, type[FedmqError]] = {
    **dict.fromkeys((400, 404, 413, 415, 422), DataError),
    429: Overloaded,
    **dict.fromkeys((503, 504), PeerSilent),
}


def raised_in_words(error: Exception) -> str:
    """What a caller's function raised, and in which of its lines."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first one called it
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    place = f"{Path(own[-1].filename).name}, line {own[-1].lineno}: " if own else ""
    return f"{place}{type(error).__name__}: {error}"

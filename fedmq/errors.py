"""Everything fedmq raises on purpose, in one tree.

::

    FedmqError                 exit code 1
    ├── ConfigError            3   a configuration, parameter or job file is wrong
    ├── DataError              4   a table, a label or an id is wrong
    │   └── SourceAway             a file is missing or a database does not answer: perhaps for now
    ├── LinkError              5   the broker, or a Dask scheduler, cannot be reached, or refuses
    │   ├── Unroutable             no queue stands behind the recipient's name
    │   └── Oversized              a message is larger than a transport carries
    ├── SessionError           6   a session ended without a result
    │   ├── Refused                a party declined to take part
    │   ├── Aborted                a party gave up in the middle
    │   ├── PeerSilent             a party did not answer in time
    │   └── Overloaded             too much is asked at once; ask again later
    ├── DaemonError            7   no daemon answers, or it answers in error
    ├── MessageError           8   bytes that are no message of this protocol version
    │   ├── Untrusted              its seal does not hold: forged, altered or re-addressed
    │   └── Replayed               it was said before, and is not taken twice
    └── ProtocolError          9   an event that is illegal in this state

A message names the party, file, row, column or key, and what to do next.
It never carries another party's data.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "Aborted",
    "ConfigError",
    "DaemonError",
    "DataError",
    "FedmqError",
    "LinkError",
    "MessageError",
    "Overloaded",
    "Oversized",
    "PeerAway",
    "PeerSilent",
    "ProtocolError",
    "Refused",
    "Replayed",
    "SessionError",
    "SourceAway",
    "TooManyRows",
    "Unroutable",
    "Untrusted",
]


class FedmqError(Exception):
    """Base of all errors that fedmq raises on purpose; ``exit_code`` is what the CLI ends with."""

    exit_code: ClassVar[int] = 1


class ConfigError(FedmqError):
    """A configuration, parameter or job file is wrong; the message names file and key."""

    exit_code = 3


class DataError(FedmqError):
    """A table, a label or an id is wrong; the message names file, row or column."""

    exit_code = 4


class SourceAway(DataError):
    """A table's file cannot be opened, or its database does not answer: perhaps only for now."""


class TooManyRows(DataError):
    """More rows are asked for in one request than its service takes."""


class LinkError(FedmqError):
    """The broker, or a Dask scheduler, cannot be reached, or refuses what was asked of it."""

    exit_code = 5


class Unroutable(LinkError):
    """No queue stands behind the recipient's name."""


class Oversized(LinkError):
    """A message is larger than the transport carries."""


class SessionError(FedmqError):
    """A session ended without a result."""

    exit_code = 6


class Refused(SessionError):
    """A party declined to take part; the message names it and gives its reason."""


class Aborted(SessionError):
    """A party gave up in the middle; the message names it and gives its reason."""


class PeerSilent(SessionError):
    """A party did not answer within the retry policy."""


class PeerAway(PeerSilent):
    """A party has not answered for a while, so nobody waited for it."""


class Overloaded(SessionError):
    """More is asked at once than can be answered in time; ask again later."""


class DaemonError(FedmqError):
    """No daemon answers on the control socket, or it answers in error."""

    exit_code = 7


class MessageError(FedmqError):
    """Bytes that are no message of this protocol version."""

    exit_code = 8


class Untrusted(MessageError):
    """A message whose seal does not hold: forged, altered, re-addressed, or of an unknown key."""


class Replayed(MessageError):
    """A message that was taken before; it changes nothing a second time."""


class ProtocolError(FedmqError):
    """An event that is illegal in the machine's state; the state is left as it was."""

    exit_code = 9

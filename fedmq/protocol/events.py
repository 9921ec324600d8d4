"""What happens to a machine, and what does it want done? Data only."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmq.computation import Computation
from fedmq.errors import FedmqError
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.privacy.plan import Ended, Exchange, Plan, Reply
from fedmq.protocol.session_records import Record

__all__ = [
    "Answer",
    "Arrived",
    "CancelTimer",
    "Cancelled",
    "ComputationFailed",
    "ConsentDecided",
    "ConsentPending",
    "Effect",
    "Event",
    "Fail",
    "Finish",
    "Interrupted",
    "Pause",
    "PeerLost",
    "PlanReturned",
    "Received",
    "Report",
    "RequestConsent",
    "Resume",
    "RunPlan",
    "Save",
    "Send",
    "SetTimer",
    "Start",
    "TimerFired",
    "Transmit",
    "Waiting",
]


@dataclass(frozen=True, slots=True)
class Start:
    """Begin."""


@dataclass(frozen=True, slots=True)
class Received:
    """A body from ``sender``, delivered once and in the order of sending."""

    sender: str
    body: Body


@dataclass(frozen=True, slots=True)
class PlanReturned:
    """The plan of ``ticket`` has computed everything up to ``step``."""

    ticket: int
    step: Ended | Exchange | Reply


@dataclass(frozen=True, slots=True)
class ComputationFailed:
    """A computation of the plan of ``ticket`` failed."""

    ticket: int
    error: FedmqError


@dataclass(frozen=True, slots=True)
class PeerLost:
    """``peer`` has not answered within the retry policy."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The session must end: its owner cancels it, or it cannot continue.

    The peers read ``disclosed``, or the reason if it is empty.
    """

    reason: str
    disclosed: str = ""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The timer ``key`` ran out."""

    key: Hashable


@dataclass(frozen=True, slots=True)
class Pause:
    """The owner of this party pauses the session after the current tree."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The owner of this party resumes a paused session."""


@dataclass(frozen=True, slots=True)
class ConsentDecided:
    """The owner of this party has decided: it takes part if ``refusal`` is empty."""

    refusal: str = ""


Event = (
    Start
    | Received
    | PlanReturned
    | ComputationFailed
    | PeerLost
    | Cancelled
    | TimerFired
    | Pause
    | Resume
    | ConsentDecided
)


@dataclass(frozen=True, slots=True)
class Send:
    """Send ``body`` to ``recipient``."""

    recipient: str
    body: Body


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Run ``plan`` elsewhere, from its first ``computations`` up to a step that computes nothing.

    The plan returns as :class:`PlanReturned` with ``ticket``.
    """

    ticket: int
    plan: Plan[Any]
    computations: Sequence[Computation]


@dataclass(frozen=True, slots=True)
class Report:
    """Progress for users: ``done`` of ``total`` units, and the figures so far."""

    done: int
    total: int
    unit: str
    details: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Answer:
    """The ``result`` of request number ``request`` of a batch: scores, or an error."""

    request: int
    result: Any


@dataclass(frozen=True, slots=True)
class Save:
    """Write ``record`` to disk before any later message leaves."""

    record: Record


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Only a new attempt can continue; ``reason``: what ``party`` did."""

    party: str
    reason: str = "was restarted"


@dataclass(frozen=True, slots=True)
class Finish:
    """The session reached its end with ``result``."""

    result: Any


@dataclass(frozen=True, slots=True)
class Fail:
    """The session ended without a result; the peers read ``disclosed``, or the error."""

    error: FedmqError
    disclosed: str = ""


@dataclass(frozen=True, slots=True)
class Arrived:
    """An envelope arrived at the time ``at``; it may be repeated or early.

    Times are seconds of one clock, and only compared with one another.
    """

    envelope: Envelope
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Transmit:
    """Hand ``envelope`` to the transport; ``again``: this is a resend.

    ``in_bulk``: it travels with the many megabytes that a broker need not keep over its restart.
    """

    envelope: Envelope
    again: bool = False
    in_bulk: bool = False


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Start the timer ``key`` anew, to run out in ``seconds``."""

    key: Hashable
    seconds: float


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Stop the timer ``key``, if it runs."""

    key: Hashable


@dataclass(frozen=True, slots=True)
class Waiting:
    """``peer`` has not acknowledged; this is resend number ``retry`` of ``retries``.

    Zero: the peer has answered again.
    """

    peer: str
    retry: int
    retries: int


@dataclass(frozen=True, slots=True)
class RequestConsent:
    """Ask the owner of this party whether it takes part; :class:`ConsentDecided` is the answer."""


@dataclass(frozen=True, slots=True)
class ConsentPending:
    """The owner of ``peer`` has ``seconds`` to answer; 0: the owner has answered."""

    peer: str
    seconds: int


Effect = (
    Send
    | RunPlan
    | Report
    | Answer
    | Save
    | Interrupted
    | Finish
    | Fail
    | Transmit
    | SetTimer
    | CancelTimer
    | Waiting
    | RequestConsent
    | ConsentPending
)

"""How does a message get from the queue to a session's machine, and its answer back?

`Inbox` checks each delivery and finds its session. `SessionRunner` hands it to the session and
carries out the effects: messages, computations, timers, records on disk. `SessionLane` publishes.
`identity.sealer` opens seals; the session's mailbox keeps the order of messages; the machine
refuses messages that its state does not expect.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol

from fedmq.computation import Computation
from fedmq.errors import (
    FedmqError,
    LinkError,
    MessageError,
    Oversized,
    Replayed,
    Stale,
    Unreadable,
    Unroutable,
)
from fedmq.messages.body import Probe
from fedmq.messages.envelope import Envelope, Header
from fedmq.party.compute.pool import ComputePool
from fedmq.party.identity.sealer import Clear, Sealer
from fedmq.party.sessions.observe import Observer, Observers
from fedmq.party.store.journal import NULL_JOURNAL, Journal
from fedmq.party.telemetry.metrics import Counters
from fedmq.party.telemetry.timeline import Span
from fedmq.privacy.plan import Compute
from fedmq.protocol.events import (
    Arrived,
    Cancelled,
    CancelTimer,
    ComputationFailed,
    ConsentDecided,
    ConsentPending,
    Effect,
    Fail,
    Finish,
    Interrupted,
    Pause,
    Report,
    RequestConsent,
    Resume,
    RunPlan,
    Save,
    SetTimer,
    Start,
    TimerFired,
    Transmit,
    Waiting,
)
from fedmq.protocol.machine import PlanRunner
from fedmq.protocol.session import Mailbox, Session, SessionEvent
from fedmq.protocol.session_records import ConsentUsed, NodesWon, TranscriptMessage
from fedmq.transport.link import MAX_MESSAGE_BYTES, Delivery, Lane, Link
from fedmq.transport.sealing.connection import Recent
from fedmq.transport.sealing.keys import LateSignature

__all__ = ["NOBODY_ASKED", "Inbox", "Owner", "Publish", "SessionLane", "SessionRunner"]

log = logging.getLogger(__name__)


async def _nobody(_: Envelope) -> None:
    return None


async def _left_unanswered(_: Header) -> None:
    return None


_ENDED_KNOWN = 1000
"""Sessions that ended here last."""
_REFUSALS_KNOWN = 1000  # a broker delivers again at most what was not settled
_CLOCKS_DIFFER_SECONDS = 60.0  # a broker gives the time of sending in whole seconds


class Inbox:
    """Checks each delivery, hands it to its session, and acknowledges it.

    Drops messages of an attempt older than the running one. ``on_refused`` gets each dead letter
    and its reason.
    """

    def __init__(
        self,
        federation: str,
        party: str,
        *,
        sealer: Sealer | None = None,
        on_refused: Callable[[Delivery, str], None] = lambda _, __: None,
        counters: Counters | None = None,
    ) -> None:
        self.on_unexpected: Callable[[Envelope], Awaitable[SessionRunner | None]] = _nobody
        """The runner for an envelope of no running attempt; None drops the envelope."""
        self.on_online: Callable[[Envelope], None] = lambda _: None
        """Takes messages of the online lane, which has no sessions."""
        self.on_unreadable: Callable[[Header], Awaitable[None]] = _left_unanswered
        """Takes the header of a message for this party, of no running session, whose body cannot be
        read here."""
        self.counters = counters or Counters()
        self._federation = federation
        self._party = party
        self._open = (sealer or Clear()).open
        self._on_refused = on_refused
        self._runners: dict[str, SessionRunner] = {}
        self._refused: Recent[bytes, str] = Recent(_REFUSALS_KNOWN)
        self._ended: Recent[str, None] = Recent(_ENDED_KNOWN)

    def add(self, runner: SessionRunner) -> None:
        """Deliver the session's messages to ``runner``; it replaces runners of older attempts."""
        self._runners[runner.session.mailbox.address.session] = runner

    def remove(self, runner: SessionRunner) -> None:
        """Forget ``runner``: its session is closed."""
        session = runner.session.mailbox.address.session
        if self._runners.get(session) is runner:
            del self._runners[session]
            self._ended.put(session, None)

    async def on_delivery(self, delivery: Delivery) -> None:
        """Take one delivery; anything but a message for this party becomes a dead letter."""
        await self.take(delivery)

    async def take(self, delivery: Delivery) -> str:
        """As `on_delivery`; returns why no session accepted the delivery, empty on success."""
        self.counters.redeliveries += delivery.redelivered
        if delivery.sent is not None:
            self.counters.queue_age = max(0.0, self.counters.clock() - delivery.sent)
        about = {"message_id": delivery.message_id}
        try:
            envelope = self._checked(delivery)
            if envelope is None:  # a handshake, already handled by the sealer
                await delivery.ack()
                return ""
            if delivery.lane == "online":
                self.on_online(envelope)
                return ""
            header = envelope.header
            runner = self._runners.get(header.session)
            attempt = runner.session.mailbox.address.attempt if runner else 0
            if header.attempt < attempt:
                runner = None
            elif header.attempt > attempt:
                runner = await self.on_unexpected(envelope)
            if runner is not None:
                runner.deliver(envelope, len(delivery.body))
        except (Replayed, Stale) as error:
            if reason := self._refused.get(hashlib.sha256(delivery.body).digest()):
                # It was refused before, and the connection broke before the broker knew that.
                await delivery.dead_letter(reason)
                return reason
            # Drop these rather than keep them: an honest broker repeats messages too, and holds
            # some while this daemon restarts; senders resend the messages that matter.
            self.counters.refused[type(error).__name__] += 1
            log.info("%s: dropped %s: %s", self._party, delivery.message_id, error, extra=about)
            await delivery.ack()
            return str(error)
        except MessageError as error:
            self.counters.refused[type(error).__name__] += 1
            self._refused.put(hashlib.sha256(delivery.body).digest(), str(error))
            self._on_refused(delivery, str(error))
            if isinstance(error, Unreadable) and error.header.session not in self._runners:
                await self.on_unreadable(error.header)
            await delivery.dead_letter(str(error))
            return str(error)
        await delivery.ack()
        if runner is not None:
            return ""
        if header.session not in self._ended:  # peers may repeat what they said last
            self.counters.dropped += 1
        log.info("%s: dropped %s", self._party, envelope.header.id, extra=about)
        return f"session {envelope.header.session} does not run here in this attempt"

    def _checked(self, delivery: Delivery) -> Envelope | None:
        """The envelope in ``delivery``; Unreadable is raised of messages to this party alone."""
        if len(delivery.body) > MAX_MESSAGE_BYTES:  # before it is decoded
            raise MessageError(
                f"{len(delivery.body)} bytes are not a fedmq message, which has at most "
                f"{MAX_MESSAGE_BYTES}"
            )
        envelope, unreadable = None, None
        try:
            envelope = self._open(delivery.body)
        except Unreadable as error:
            unreadable = error
        if envelope is not None:
            header = envelope.header
        elif unreadable is not None:
            header = unreadable.header
        else:
            return None
        if header.federation != self._federation or header.recipient != self._party:
            raise MessageError(
                f"message {header.id!r} is for {header.recipient} in {header.federation}"
            )
        if header.sender != delivery.sender:
            raise MessageError(
                f"message {header.id!r} claims to be from {header.sender}, but the broker says "
                f"{delivery.sender}"
            )
        if unreadable is not None:
            raise unreadable
        counters = self.counters
        counters.messages_received[header.kind] += 1
        counters.bytes_received[header.kind] += len(delivery.body)
        now = counters.heard[header.sender] = counters.clock()
        if delivery.sent is not None and delivery.sent > now + _CLOCKS_DIFFER_SECONDS:
            counters.clocks[header.sender] = delivery.sent, now
        elif counters.clocks:
            counters.clocks.pop(header.sender, None)
        return envelope


_HANDSHAKE_SECONDS = 2.0  # after which a caller waits for the party rather than for its answer
_OUTSTANDING = 16  # unconfirmed publishes at once, besides acknowledgements and probes


class Publish(Protocol):
    """Publishes an envelope: recipient, its bytes, its id, and whether it may go in bulk."""

    async def __call__(
        self, recipient: str, body: bytes, *, message_id: str, in_bulk: bool = False
    ) -> None: ...


class Owner(Protocol):
    """This party's owner, as a session asks for consent."""

    async def answer(self) -> str:
        """Wait for the answer: why this party does not take part; empty if it does."""

    async def use(self) -> None:
        """Record that the session has used the consent, so that no other session may."""


class _Nobody:
    async def answer(self) -> str:
        return ""

    async def use(self) -> None: ...


NOBODY_ASKED: Owner = _Nobody()
"""For sessions that need no owner's consent."""


class SessionRunner:
    """Runs one attempt at a session; ``outcome`` resolves to its result or the error that ended it.

    ``interrupted`` resolves to the reason why only a new attempt can go on. The mailbox resends
    a message whose publish fails. A message leaves only after ``journal`` has written everything
    before it. ``owner`` has to agree first.
    """

    def __init__(
        self,
        session: Session,
        *,
        publish: Publish,
        pool: ComputePool,
        sealer: Sealer | None = None,
        journal: Journal = NULL_JOURNAL,
        observers: Iterable[Observer] = (),
        owner: Owner = NOBODY_ASKED,
        outlives_crash: bool = False,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.session = session
        self.outlives_crash = outlives_crash
        """Whether a new attempt can continue the session after a crash."""
        self.outcome: asyncio.Future[Any] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.interrupted: asyncio.Future[str] = loop.create_future()
        self._loop = loop
        self._publish = publish
        self._pool = pool
        self._seen = Observers(observers)
        self._owner = owner
        self._sealer = sealer or Clear()
        self._seal = self._sealer.seal
        self._link_trouble = ""
        self._unsealed: set[str] = set()
        self._stopped = False
        self._withdrawn = False
        self._outstanding = asyncio.Semaphore(_OUTSTANDING)
        self._tasks: set[asyncio.Task[None]] = set()
        self._due: dict[Hashable, float] = {}
        """When each timer is to fire, by the event loop's clock."""
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        self._journal = journal
        self._kept: asyncio.Task[None] | None = None
        self.closed.add_done_callback(self._tell_closed)
        self._keep(journal.begin)

    def start(self) -> None:
        """Begin, if this party begins the session."""
        self._feed(Start())

    def deliver(self, envelope: Envelope, size: int = 0) -> None:
        """Hand in an envelope that arrived in ``size`` bytes.

        Raises:
            MessageError: it does not belong to this session, and changed nothing.
        """
        for see in self._seen.arrived:
            see(envelope.header, size)
        self._feed(Arrived(envelope, self._loop.time()))

    def cancel(self, reason: str) -> None:
        """End the session and tell the other parties why."""
        self._feed(Cancelled(reason))

    def pause(self, paused: bool) -> None:
        """Pause the session after the current tree, or go on.

        Raises:
            ProtocolError: a session of this kind, or in this state, cannot pause.
        """
        self._perform(self.session.handle(Pause() if paused else Resume()))

    def stop_resending(self, peer: str) -> None:
        """Resend nothing to ``peer``: it learns of the end in another attempt."""
        self._perform(self.session.mailbox.stop_resending(peer))

    async def written(self) -> None:
        """Wait until every record so far is on disk."""
        if self._kept is not None:
            await asyncio.wait([self._kept])

    def release(self) -> None:
        """Free the tables of a closed session: from now on it only acknowledges repetitions."""
        self.session.release()
        self._journal, self._owner = NULL_JOURNAL, NOBODY_ASKED

    def stop(self) -> None:
        """Drop everything: no message, timer or computation remains, and none begins."""
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        if not self.outcome.done():
            self.outcome.cancel()
        if not self.closed.done():
            self.closed.set_result(None)

    def _feed(self, event: SessionEvent) -> None:
        if self._stopped:  # later events are for the daemon that resumes the session
            return
        try:
            effects = self.session.handle(event)
        except MessageError:
            raise
        except Exception as error:  # a bug of ours must not leave the session hanging
            log.exception("%s failed on %s", self.session.mailbox.address, type(event).__name__)
            effects = self._given_up(f"internal error: {type(error).__name__}")
        if isinstance(event, Arrived):
            for see in self._seen.taken:
                see(event.envelope)
        for see in self._seen.moved:
            see(self.session.machine)
        self._perform(effects)

    def _perform(self, effects: Iterable[Effect], *, last: bool = False) -> None:
        """Carry out ``effects``. A bug of ours ends the session; it raises only if ``last``."""
        try:
            for effect in effects:
                match effect:
                    case Transmit(envelope, _, in_bulk):
                        for see in self._seen.handed_over:
                            see(envelope)
                        self._spawn(self._transmit(envelope, self._kept, in_bulk=in_bulk))
                    case RunPlan(ticket, plan, computations):
                        self._run(PlanRunner(ticket, plan, computations))
                    case SetTimer(key, seconds):
                        due = self._due[key] = self._loop.time() + seconds
                        timer = self._timers.get(key)
                        # Nearly all are set again or cancelled long before they fire: for a later
                        # time the event loop's own stays, and is set anew when it comes too early.
                        if timer is None or due < timer.when():
                            if timer is not None:
                                timer.cancel()
                            self._timers[key] = self._loop.call_at(due, self._wake, key)
                    case CancelTimer(key):
                        self._due.pop(key, None)
                    case Report():
                        for report in self._seen.reported:
                            report(effect)
                    case Waiting():
                        for wait in self._seen.waited:
                            wait(effect, self._link_trouble)
                    case RequestConsent():
                        self._spawn(self._ask_owner())
                    case Save(TranscriptMessage() | NodesWon() as noted):
                        self._journal.note(noted)
                    case Save(ConsentUsed()):
                        self._keep(self._owner.use)
                    case Save(record):
                        self._keep(partial(self._journal.write, record))
                    case ConsentPending():
                        for ask in self._seen.consent_awaited:
                            ask(effect)
                    case Interrupted(party, reason):
                        if not self.interrupted.done():
                            self.interrupted.set_result(f"{party} {reason}")
                    case Finish(result):
                        self._keep(partial(self._finish, result))
                    case Fail(error, disclosed):
                        disclosed = disclosed or str(error)
                        explained = self._explained(error)
                        self._keep(partial(self._journal.fail, disclosed, str(explained)))
                        if not self.outcome.done():
                            self.outcome.set_exception(explained)
                    case _:
                        raise AssertionError(f"no effect for the outside: {effect}")
        except Exception as error:  # such as an observer's: no reason to leave a caller waiting
            if last:
                raise
            log.exception("%s failed on its effects", self.session.mailbox.address)
            self._perform(self._given_up(f"internal error: {type(error).__name__}"), last=True)
        if self.session.over and not self.closed.done():
            self._close_when_done()

    def _close_when_done(self) -> None:
        written = self._kept is None or self._kept.done()
        if written and self.session.closed and not self.closed.done():
            self.closed.set_result(None)

    def _tell_closed(self, _: asyncio.Future[None]) -> None:
        for key in self._timers.keys() - self._due.keys():  # those that were cancelled
            self._timers.pop(key).cancel()
        for see in self._seen.closed:
            see(self.outcome)

    def _given_up(self, reason: str) -> list[Effect]:
        """The session's own end, or an end without its peers if even that fails."""
        try:
            return self.session.handle(Cancelled(reason))
        except Exception:
            log.exception("%s cannot end cleanly", self.session.mailbox.address)
            return [Fail(FedmqError(reason))]

    async def _ask_owner(self) -> None:
        try:
            refusal = await self._owner.answer()
        except Exception as error:
            log.exception("%s: the owner cannot be asked", self.session.mailbox.address)
            self._feed(Cancelled(f"internal error: {type(error).__name__}"))
            return
        if not self.session.over:
            self._feed(ConsentDecided(refusal))

    def _explained(self, error: FedmqError) -> FedmqError:
        """The error, with the link's reason if the peer could not be reached."""
        if self._link_trouble:
            error.args = (f"{error} ({self._link_trouble})",)
        return error

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work``, which raises nothing, and hold its task: asyncio keeps no reference."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _wake(self, key: Hashable) -> None:
        came = self._timers.pop(key).when()
        due = self._due.get(key)
        if due is None:
            return
        if came < due:
            self._timers[key] = self._loop.call_at(due, self._wake, key)
        else:
            del self._due[key]
            self._feed(TimerFired(key))

    def _keep(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do ``work`` after all earlier writes."""
        before = self._kept

        async def keep() -> None:
            if before is not None:
                await asyncio.wait([before])
            try:
                await work()
            except FedmqError as error:
                self._withdraw()
                self._feed(Cancelled(str(error)))
            except Exception as error:  # a bug of ours must not leave the session hanging
                log.exception("%s: cannot be stored", self.session.mailbox.address)
                self._withdraw()
                self._feed(Cancelled(f"internal error: {type(error).__name__}"))

        self._kept = self._spawn(keep())
        self._kept.add_done_callback(lambda _: self._close_when_done())

    def _withdraw(self) -> None:
        """Hold back every message on its way out: the records before it are not on disk."""
        self._withdrawn = True
        self.session.mailbox.withdraw()

    async def _finish(self, result: Any) -> None:
        await self._journal.finish(result)
        if not self.outcome.done():
            self.outcome.set_result(result)

    async def _transmit(
        self, envelope: Envelope, kept: asyncio.Task[None] | None, *, in_bulk: bool
    ) -> None:
        """Seal and publish ``envelope`` once all records before it are ``kept``."""
        header, mailbox = envelope.header, self.session.mailbox
        if kept is not None and not kept.done():
            # No copies pile up behind a disk that is slow or full.
            mailbox.publishing(header.recipient, header.sequence)
            await asyncio.wait([kept])
            mailbox.published(header.recipient, header.sequence, 0, None)
        late = getattr(envelope.body, "signature", b"")
        try:
            if isinstance(late, LateSignature):
                envelope = await _signed(envelope, late, mailbox)
        except FedmqError as error:
            machine = self.session.machine
            if self.session.over and machine.state is not machine.failed_state:
                log.warning("%s: %s is not signed: %s", header.sender, header.id, error)
                return  # the mailbox resends it, and the key is asked again
            self._withdraw()  # in its place a probe: others take nothing beyond a gap
            self._feed(ComputationFailed(0, error))
        try:
            if self._sealer.sealed and not await self._agreed(header):
                return
            mailbox.publishing(header.recipient, header.sequence)
            size, at = 0, None
            try:
                # Acknowledgements and probes never wait behind megabytes.
                small = header.sequence == 0 or isinstance(envelope.body, Probe)
                async with nullcontext() if small else self._outstanding:
                    if self._withdrawn:
                        envelope = mailbox.leaving(envelope)
                        header = envelope.header
                    data = self._seal(envelope)
                    size = len(data)
                    for see in self._seen.leaving:
                        see(header, size)
                    begun = time.time()
                    await self._publish(
                        header.recipient, data, message_id=header.id, in_bulk=in_bulk
                    )
                    for confirm in self._seen.left:
                        confirm(header, size, begun)
                at = self._loop.time()
            finally:
                if not self._stopped:
                    self._perform(mailbox.published(header.recipient, header.sequence, size, at))
        except LinkError as error:
            # A session that outlives a crash also waits for a queue that the broker has lost.
            waits = not isinstance(error, Oversized) and self.outlives_crash
            if isinstance(error, Unroutable | Oversized) and not waits:
                self._feed(Cancelled(str(error)))
                return
            self._link_trouble = str(error)
            log.warning(
                "%s: %s was not sent: %s",
                header.sender,
                header.id,
                error,
                extra={"session": header.session, "message_id": header.id},
            )
        except Exception:  # the mailbox resends it
            log.exception("%s: %s was not sent", header.sender, header.id)
        else:
            self._link_trouble = ""

    async def _agreed(self, header: Header) -> bool:
        """Whether keys are agreed on with the recipient; False if a resend already waits for them.

        A message that the mailbox resends waits once, and leaves when the recipient is there.

        Raises:
            LinkError: no keys are agreed on, and no resend covers this message.
        """
        if header.id in self._unsealed:
            return False
        self._unsealed.add(header.id)
        try:
            try:
                await self._sealer.ready(header, _HANDSHAKE_SECONDS)
            except LinkError as error:
                if not header.sequence:
                    raise
                self._link_trouble = str(error)
                await self._sealer.ready(header)
                self._link_trouble = ""
        finally:
            self._unsealed.discard(header.id)
        return True

    def _run(self, run: PlanRunner) -> None:
        for index, computation in enumerate(run.computations):
            self._spawn(self._compute(run, index, computation))

    async def _compute(self, run: PlanRunner, index: int, computation: Computation) -> None:
        """Do a computation of a plan, and the plan's follow-up after its last computation."""
        asked, what = time.time(), computation.label.lstrip("_")
        begun = time.perf_counter()
        try:
            try:
                if self._seen.computed:

                    def on_done(span: Span) -> None:
                        for see in self._seen.computed:
                            see(what, asked, span)

                    result = await self._pool.run(computation, on_done)
                else:
                    result = await self._pool.run(computation)
            finally:
                for see in self._seen.worked:
                    see(computation.label, time.perf_counter() - begun)
            if self.session.over:
                return  # the plan has been dropped
            following = run.add(index, result)
        except FedmqError as error:
            following = ComputationFailed(run.ticket, error)
        except Exception as error:
            log.exception("computation %s failed", what)
            failure = FedmqError(f"internal error in {what}: {type(error).__name__}")
            following = ComputationFailed(run.ticket, failure)
        if isinstance(following, Compute):
            self._run(run)
        elif following is not None:
            self._feed(following)


async def _signed(envelope: Envelope, late: LateSignature, mailbox: Mailbox) -> Envelope:
    """``envelope`` with the signature that a slow key has yet to make.

    Raises:
        FedmqError: the key refuses.
    """
    header = envelope.header
    mailbox.publishing(header.recipient, header.sequence)
    try:
        signature = await asyncio.to_thread(late.made)
    finally:
        mailbox.published(header.recipient, header.sequence, 0, None)
    return Envelope(header, envelope.body.model_copy(update={"signature": signature}))


class SessionLane:
    """Publishes a session's messages on ``lane``, and large ones on the bulk lane.

    Recipients without a bulk queue (older broker definitions) get everything on ``lane``.
    """

    def __init__(self, link: Link, lane: Lane) -> None:
        self._link = link
        self._lane = lane
        self._asking = asyncio.Lock()
        self._reads_bulk: dict[str, bool] = {}

    async def publish(
        self, recipient: str, body: bytes, *, message_id: str, in_bulk: bool = False
    ) -> None:
        """Send ``body``; raises like `Link.publish`."""
        if in_bulk and await self._bulk_is_read(recipient):
            try:
                await self._link.publish(recipient, "bulk", body, message_id=message_id)
            except Unroutable:  # its queue is gone
                self._reads_bulk[recipient] = False
            else:
                return
        await self._link.publish(recipient, self._lane, body, message_id=message_id)

    async def _bulk_is_read(self, recipient: str) -> bool:
        async with self._asking:
            if recipient not in self._reads_bulk:
                self._reads_bulk[recipient] = await self._link.is_read(recipient, "bulk")
        return self._reads_bulk[recipient]

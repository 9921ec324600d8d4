"""What a feature holder answers to an online question, and what it remembers of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Set

from fedmq.boosting.model.served_forest import RecordPlaces
from fedmq.errors import ProtocolError, RateLimited, Refused, RowsUnavailable
from fedmq.messages.body import Body
from fedmq.messages.envelope import Header
from fedmq.messages.online import (
    OnlineBitmaps,
    OnlineExits,
    OnlineHop,
    OnlinePing,
    OnlinePong,
    OnlineRefusal,
    OnlineRows,
)
from fedmq.party.configuration.online import OnlineSection
from fedmq.party.consent.question_log import QuestionLog
from fedmq.party.online.answering.batch_ledger import BatchLedger
from fedmq.party.online.answering.hosted_share import HostedShare
from fedmq.party.online.answering.rate_limits import RateLimits
from fedmq.party.online.drift.watch import DriftWatch
from fedmq.protocol.online.passive import AnsweringShare, check_records

__all__ = ["Answering"]

log = logging.getLogger(__name__)

_ANSWERS = (OnlineExits, OnlineBitmaps)


class Answering:
    """Answers for ``shares``, which lie by model id, within the owner's limits and policy.

    ``consent`` raises `Refused` where the policy forbids answering. ``agree`` does so where it
    forbids that many rows more; ``until_written`` waits until what was agreed to is on the disk.
    """

    def __init__(
        self,
        section: OnlineSection,
        question_log: QuestionLog | None,
        clock: Callable[[], float] = time.monotonic,
        consent: Callable[[Header], None] = lambda _: None,
        agree: Callable[[int], None] = lambda _: None,
        until_written: Callable[[Header], Awaitable[None]] | None = None,
        drift: DriftWatch | None = None,
    ) -> None:
        self.shares: dict[str, HostedShare] = {}
        self.questions = 0
        """How many were asked since the start."""
        self.rate_limits = RateLimits(section, clock)
        self._ledger = BatchLedger()
        self._section = section
        self._question_log = question_log
        self._consent = consent
        self._agree = agree
        self._until_written = until_written
        self._drift = drift

    def forget_all_but(self, kept: Set[str]) -> None:
        """Keep the shares of the models with these ids, and no others."""
        for model in set(self.shares) - kept:
            del self.shares[model]

    async def answer(self, header: Header, body: Body) -> Body | None:
        """The answer to ``body``, perhaps a refusal; None where it is no question."""
        if isinstance(body, OnlinePing):
            return OnlinePong()
        if not isinstance(body, OnlineHop | OnlineRows):
            return None
        self.questions += 1
        answer = await self._answer(header, body)
        if self._drift is not None and self._drift.shows_alarm and isinstance(answer, _ANSWERS):
            answer = answer.model_copy(update={"drifts": True})
        if self._question_log is not None:
            mode = "hop" if isinstance(body, OnlineHop) else "bitmap"
            outcome = answer.cause if isinstance(answer, OnlineRefusal) else "yes"
            self._question_log.note(
                header.sender, header.session, body.model, mode, body.ids, outcome
            )
        return answer

    async def _answer(self, header: Header, body: OnlineHop | OnlineRows) -> Body:
        # A question of one row takes some 100 microseconds, one of 250 rows a few milliseconds:
        # less than it would take to hand it to another process.
        try:
            self._consent(header)
        except Refused as error:
            return self._refusal(body, "policy", str(error))
        mode = "hop" if isinstance(body, OnlineHop) else "bitmap"
        if mode not in self._section.modes:
            return self._refusal(body, "mode", f"mode {mode} is not answered here")
        share = self.shares.get(body.model)
        if share is None:
            return self._refusal(body, "model", f"model {body.model} is not served here")
        try:
            if isinstance(body, OnlineHop):
                check_records(body, share.chains)  # before anything is as long as they say
            self._enter(header, body, share.places)
            if isinstance(body, OnlineHop):
                self.rate_limits.check(
                    header.sender,
                    header.session,
                    body.batch,
                    body.ids,
                    body.rows.numpy(),
                    body.records.numpy(),
                    share.records_asked,
                    agree=self._agree,
                )
                await self._written(header)
                exits = (await self._about(header, body, share)).exits(body)
                self._ledger.answered(
                    header.sender, header.session, body, exits.exits.numpy(), share.places
                )
                return exits
            self.rate_limits.check(
                header.sender, header.session, body.batch, body.ids, agree=self._agree
            )
            await self._written(header)
            return (await self._about(header, body, share)).bitmaps(body)
        except RateLimited as error:
            return self._refusal(body, error.cause, str(error))
        except RowsUnavailable as error:
            return self._refusal(body, "data", str(error))
        except ProtocolError as error:
            log.warning("%s sent a malformed question: %s", header.sender, error)
            return self._refusal(body, "data", str(error))

    async def _about(
        self, header: Header, body: OnlineHop | OnlineRows, share: HostedShare
    ) -> AnsweringShare:
        """The share with the rows of a question, which are put aside to be counted."""
        about = await share.about(body.ids, body.budget)
        if self._drift is not None:
            batch = header.session, body.batch
            self._drift.put_aside_asked(batch, body.model, body.ids, about.row_of, about.values)
        return about

    async def _written(self, header: Header) -> None:
        if self._until_written is not None:
            try:
                await self._until_written(header)
            except Refused as error:
                raise RateLimited("rate", str(error)) from None

    def _enter(
        self, header: Header, body: OnlineHop | OnlineRows, places: RecordPlaces | None
    ) -> None:
        try:
            self._ledger.enter(header.sender, header.session, body, places)
        except RateLimited as error:
            self.rate_limits.turned_away += 1
            log.warning("%s asks for more than scores: %s", header.sender, error)
            raise

    def _refusal(self, body: OnlineHop | OnlineRows, cause: str, reason: str) -> OnlineRefusal:
        return OnlineRefusal.model_validate(
            {"batch": body.batch, "hop": body.hop, "cause": cause, "reason": reason}
        )

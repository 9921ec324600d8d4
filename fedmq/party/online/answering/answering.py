"""A feature holder's side of online scores: questions in, answers out, nothing kept."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Set
from functools import partial

from fedmq.errors import ProtocolError, RateLimited, Refused, RowsUnavailable
from fedmq.messages.body import Body
from fedmq.messages.envelope import Header
from fedmq.messages.online import OnlineHop, OnlinePing, OnlinePong, OnlineRefusal, OnlineRows
from fedmq.party.configuration.online import OnlineSection
from fedmq.party.consent.question_log import QuestionLog
from fedmq.party.online.answering.hosted_share import HostedShare
from fedmq.party.online.answering.rate_limits import RateLimits

__all__ = ["Answering"]

log = logging.getLogger(__name__)


class Answering:
    """Answers for ``shares`` by model id, within the owner's limits."""

    def __init__(
        self,
        section: OnlineSection,
        audit: QuestionLog | None,
        clock: Callable[[], float] = time.monotonic,
        consent: Callable[[Header], None] = lambda _: None,
        agree: Callable[[Header, int], None] = lambda _, __: None,
    ) -> None:
        self.shares: dict[str, HostedShare] = {}
        self.questions = 0
        self.rate_limits = RateLimits(section, clock)
        self._section = section
        self._audit = audit
        self._consent = consent
        self._agree = agree

    def forget_all_but(self, kept: Set[str]) -> None:
        """Keep the shares of these models in memory, and no others."""
        for model in set(self.shares) - kept:
            del self.shares[model]

    async def answer(self, header: Header, body: Body) -> Body | None:
        """What to say to ``body``; None where it is no question."""
        if isinstance(body, OnlinePing):
            return OnlinePong()
        if not isinstance(body, OnlineHop | OnlineRows):
            return None
        self.questions += 1
        said = await self._answered(header, body)
        if self._audit is not None:
            mode = "hop" if isinstance(body, OnlineHop) else "bitmap"
            outcome = said.cause if isinstance(said, OnlineRefusal) else "yes"
            self._audit.note(header.sender, header.session, body.model, mode, body.ids, outcome)
        return said

    async def _answered(self, header: Header, body: OnlineHop | OnlineRows) -> Body:
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
        agree = partial(self._agree, header)
        try:
            if isinstance(body, OnlineHop):
                self.rate_limits.check(
                    header.sender,
                    header.session,
                    body.batch,
                    body.ids,
                    body.rows.numpy(),
                    body.records.numpy(),
                    agree=agree,
                )
                return (await share.about(body.ids, body.budget)).exits(body)
            self.rate_limits.check(header.sender, header.session, body.batch, body.ids, agree=agree)
            return (await share.about(body.ids, body.budget)).bitmaps(body)
        except RateLimited as turned:
            return self._refusal(body, turned.cause, str(turned))
        except RowsUnavailable as error:
            return self._refusal(body, "data", str(error))
        except ProtocolError as error:
            log.warning("%s asks amiss: %s", header.sender, error)
            return self._refusal(body, "data", str(error))

    def _refusal(self, body: OnlineHop | OnlineRows, cause: str, reason: str) -> OnlineRefusal:
        return OnlineRefusal.model_validate(
            {"batch": body.batch, "hop": body.hop, "cause": cause, "reason": reason}
        )

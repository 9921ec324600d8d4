"""The owner's consent to sessions that the policy allows; answers survive a crash.

A standing consent covers all sessions of a kind.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedmq.errors import DaemonError, FedmqError, Refused
from fedmq.messages.envelope import Header
from fedmq.party.configuration.policy import PolicySection, StandingConsent
from fedmq.party.consent.audit_log import AuditLog, audited
from fedmq.party.consent.person import Person
from fedmq.party.consent.terms import RequestedTerms
from fedmq.party.store.journal import ConsentRequest, ConsentRequestStore, RequestState
from fedmq.transport.background_tasks import BackgroundTasks

__all__ = ["OwnerConsent", "SessionOwner", "covers", "standing_consent", "terms_of", "toml_of"]

_BY_POLICY = "the policy"
_BY_TIME = "consent_within"
_BY_RESTART = "a restart"
_SHORTEST_WAIT = 0.1

_LONGEST_WAIT = 60.0
"""Seconds between two looks at the clock."""

_EVENTS: Mapping[RequestState, str] = {
    "approved": "owner agreed",
    "refused": "owner refused",
    "withdrawn": "owner no longer asked",
}

_MOST: Mapping[str, str] = {
    "most_rows": "rows",
    "most_trees": "trees",
    "most_depth": "max_depth",
    "most_bins": "max_bin",
    "most_gradient_bits": "gradient_bits",
    "most_outputs": "outputs",
    "most_folds": "folds",
    "most_earlier_trees": "earlier_trees",
}
_LEAST: Mapping[str, str] = {
    "least_key_bits": "key_bits",
    "least_training_rows": "training_rows",
    "least_sampled": "sampled",
    "least_own_trees": "own_trees",
    "least_columns_drawn": "columns_drawn",
    "least_categories": "fewest_categories",
}
_SAME: Mapping[str, str] = {
    "alignment": "alignment",
    "engine": "engine",
    "engine_options": "engine_options",
    "parties": "chain",
}
_AMONG: Mapping[str, str] = {
    "fallbacks": "fallbacks",
    "constraints": "constraints",
    "particulars": "particulars",
}
"""The term of a training that each key of a standing consent bounds: from above, from below, to be
the same, or to hold nothing else."""


class OwnerConsent:
    """Pending and past decisions of the owner of ``party``.

    ``policy`` returns the current policy. ``spent`` returns the used part of the limits, as plain
    data for the owner.
    """

    def __init__(
        self,
        party: str,
        policy: Callable[[], PolicySection],
        store: ConsentRequestStore,
        audit_log: AuditLog,
        spent: Callable[[], Awaitable[Mapping[str, Any]]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._party = party
        self._policy = policy
        self._store = store
        self._log = audit_log
        self._spent = spent
        self._clock = clock
        self._deciding = asyncio.Lock()
        self._news = asyncio.Condition()
        self._tasks = BackgroundTasks()

    def start(self) -> None:
        """Start to refuse requests that are not answered in time."""
        self._tasks.spawn(self._expire())

    def cancel(self) -> None:
        """Stop refusing late requests."""
        self._tasks.cancel()

    # A session opens

    async def seconds_left(self, header: Header, terms: RequestedTerms) -> int:
        """Seconds left for the owner to answer; 0 if the session may begin.

        Raises:
            Refused: the owner has refused it, or has not answered in time.
        """
        async with self._deciding:
            request = await self._known(header, terms)
            if request is None:
                if not self._has_to_be_asked(terms):
                    return 0
                hours = self._policy().consent_within
                request = await self._ask(header.session, terms, 3600 * hours)
            elif request.session != header.session:
                await self._store.belongs_to(request.id, header.session)
            if request.state == "waiting":
                await self._decide_by_itself(request)
                request = await self._found(request.id)
        if request.state == "refused":
            raise Refused(request.reason)
        if request.state == "approved":
            return 0
        return max(1, math.ceil(request.until - self._clock()))

    async def has_agreed(self, session: str, terms: RequestedTerms) -> bool:
        """Whether the owner agreed to these ``terms`` for ``session``, or need not be asked."""
        request = await self._store.of_session(session)
        if request is None or request.state != "approved":
            return not self._has_to_be_asked(terms)
        return (request.peer, request.digest) == (terms.peer, terms.digest)

    async def answer(self, session: str) -> str:
        """Wait for the owner's answer about ``session``: the refusal, or empty for consent."""
        async with self._news:
            while True:
                request = await self._store.of_session(session)
                if request is None or request.state == "withdrawn":
                    return "it was withdrawn"
                if request.state == "refused":
                    return request.reason
                if request.state == "approved":
                    return ""
                await self._news.wait()

    async def use(self, session: str) -> None:
        """Use up the consent to ``session``: it covers neither another session nor a new start."""
        request = await self._store.of_session(session)
        if request is not None:
            await self._store.use(request.id)

    def follow(self, session: str, outcome: asyncio.Future[Any]) -> None:
        """Withdraw the question about ``session`` if it ends before the owner answers."""

        def ended(done: asyncio.Future[Any]) -> None:
            if not done.cancelled():  # else another attempt follows, or this daemon stops
                self._tasks.spawn(self.withdraw(session))

        outcome.add_done_callback(ended)

    async def withdraw(self, session: str) -> None:
        """Withdraw the request for ``session``, which the other party aborted."""
        async with self._deciding:
            request = await self._store.of_session(session)
            if request is not None and request.state == "waiting":
                await self._decide(request, "withdrawn", "", request.peer)

    def _has_to_be_asked(self, terms: RequestedTerms) -> bool:
        policy = self._policy()
        if terms.kind == "activation":
            return policy.activate == "two"
        if terms.kind == "joint model":
            return True
        return policy.consent == "ask" and not any(
            covers(standing, terms) for standing in policy.approved
        )

    async def _known(self, header: Header, terms: RequestedTerms) -> ConsentRequest | None:
        """The request that ``header`` continues."""
        request = await self._store.of_session(header.session)
        if request is None and terms.kind != "training":
            # The active party asks again, as another session, for one that its restart ended.
            request = await self._store.unused(terms.peer, terms.digest)
            if request is not None and request.until <= self._clock():
                return None
        if request is None or request.used or request.state == "withdrawn":
            return None
        same = (request.peer, request.digest) == (terms.peer, terms.digest)
        return request if same else None

    async def _ask(self, session: str, terms: RequestedTerms, seconds: float) -> ConsentRequest:
        asked = self._clock()
        request = ConsentRequest(
            secrets.token_hex(4),
            session,
            terms.kind,
            terms.peer,
            terms.name,
            terms.digest,
            {**terms.details, "spent": dict(await self._spent())},
            asked,
            asked + seconds,
        )
        await self._record("owner asked", request)
        await self._store.add(request)
        await self._tell()
        return request

    async def another_agrees(
        self,
        terms: RequestedTerms,
        seconds: float,
        on_asked: Callable[[ConsentRequest], Awaitable[None]],
    ) -> None:
        """Wait until another person of this party than the one who asks says yes to ``terms``.

        Returns at once where the policy does not want that. ``on_asked`` gets the request.

        Raises:
            Refused: somebody says no, or nobody anything within ``seconds``.
        """
        if not self._has_to_be_asked(terms):
            return
        async with self._deciding:
            request = await self._ask(secrets.token_hex(8), terms, seconds)
        await on_asked(request)
        if reason := await self.answer(request.session):
            raise Refused(reason)
        await self._store.use(request.id)

    # The owner decides

    async def requests(self) -> list[ConsentRequest]:
        """All that are remembered, the oldest first."""
        return await self._store.all()

    async def waiting(self, request: str) -> ConsentRequest:
        """The waiting request with this id; DaemonError without one."""
        found = await self._found(request)
        if found.state != "waiting":
            by = f" by {found.decided_by}" if found.decided_by else ""
            raise DaemonError(f"request {request} no longer waits: {found.state}{by}")
        return found

    async def approve(self, request: str, by: Person) -> None:
        """Approve the request.

        Raises:
            DaemonError: it does not wait, or the person has asked for it.
        """
        async with self._deciding:
            found = await self.waiting(request)
            asker = terms_of(found).asked_by
            if asker is not None and by.may_be(asker):
                raise DaemonError(
                    f"request {request} takes another person than who asked for it: that was "
                    f"{asker}, and you are {by}"
                )
            await self._decide(found, "approved", "", str(by))

    async def refuse(self, request: str, reason: str, by: Person) -> None:
        """Refuse the request, and tell who asked the reason; DaemonError unless it waits."""
        async with self._deciding:
            found = await self.waiting(request)
            words = f"{self._party} refused: {reason}" if reason else f"{self._party} refused"
            await self._decide(found, "refused", words[:2000], str(by))

    async def reconsider(self) -> None:
        """Approve requests that the policy now approves, and refuse late ones."""
        async with self._deciding:
            for request in await self._store.waiting():
                await self._decide_by_itself(request)

    async def _decide_by_itself(self, request: ConsentRequest) -> None:
        if request.until <= self._clock():
            seconds = request.until - request.asked
            reason = f"{self._party} did not answer within {seconds / 3600:g} hours"
            if terms_of(request).asked_by is not None:
                reason = f"nobody else of {self._party} said yes within {seconds:.6g} s"
            await self._decide(request, "refused", reason, _BY_TIME)
        elif not self._has_to_be_asked(terms_of(request)):
            await self._decide(request, "approved", "", _BY_POLICY)

    async def _decide(
        self, request: ConsentRequest, state: RequestState, reason: str, by: str
    ) -> None:
        more = {"reason": reason} if reason else {}
        await self._record(_EVENTS[state], request, by=by, **more)
        await self._store.decide(request.id, state, reason, by)
        await self._tell()

    async def _found(self, request: str) -> ConsentRequest:
        found = await self._store.find(request)
        if found is None:
            raise DaemonError(f"there is no request {request}; see: fedmq inbox PARTY.toml")
        return found

    async def _record(self, event: str, request: ConsentRequest, **details: Any) -> None:
        await audited(
            self._log,
            self._party,
            event,
            peer=request.peer,
            session=request.session,
            request=request.id,
            **{request.kind: request.name},
            **({"asked_by": str(asker)} if (asker := terms_of(request).asked_by) else {}),
            **details,
        )

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def _forget_activations(self) -> None:
        """Withdraw those that waited when this daemon ended: who asked for them has gone."""
        async with self._deciding:
            for request in await self._store.waiting():
                if request.kind == "activation":
                    await self._decide(request, "withdrawn", "", _BY_RESTART)

    async def _expire(self) -> None:
        with contextlib.suppress(FedmqError):
            await self._forget_activations()
        while True:
            with contextlib.suppress(FedmqError):  # it is in the log, and tried again
                await self.reconsider()
            async with self._news:
                ends = [request.until for request in await self._store.waiting()]
                seconds = min(ends, default=math.inf) - self._clock()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(max(seconds, _SHORTEST_WAIT), _LONGEST_WAIT)):
                        await self._news.wait()


@dataclass(frozen=True, slots=True)
class SessionOwner:
    """The owner's consent for one ``session``."""

    consent: OwnerConsent
    session: str

    async def answer(self) -> str:
        """Wait for the answer: the reason of a refusal, empty for consent."""
        return await self.consent.answer(self.session)

    async def use(self) -> None:
        """Use up the consent."""
        await self.consent.use(self.session)


def terms_of(request: ConsentRequest) -> RequestedTerms:
    """The requested terms."""
    return RequestedTerms(request.peer, request.kind, request.name, request.digest, request.terms)


def covers(standing: StandingConsent, asked: RequestedTerms) -> bool:
    """Whether the consent covers ``asked``: the same kind, and no term goes beyond it."""
    if (standing.peer, standing.session) != (asked.peer, asked.kind):
        return False
    terms = asked.details
    if asked.kind == "screen":
        classes = terms.get("classes", 2)
        return (
            "pair" not in terms
            and standing.alignment == terms["alignment"]
            and standing.most_rows >= terms["rows"]
            and standing.least_training_rows <= terms["looked_at"]
            and standing.most_bins >= terms["bins"]
            and (standing.sums == "shown" or not terms["measured"] or _hides(standing, terms))
            and standing.most_correlated >= terms.get("correlated", 0)
            and (standing.number_label if classes == 0 else standing.most_classes >= classes)
        )
    if asked.kind != "training":
        if terms.get("keeps_key"):
            return False
        known_to = None if standing.known_to is None else list(standing.known_to)
        named = (standing.alignment, list(standing.parties), list(standing.normalise), known_to)
        return named == (asked.name, terms["parties"], terms["normalise"], terms.get("known_to"))
    return (
        asked.says_all
        and all(getattr(standing, bound) >= terms[term] for bound, term in _MOST.items())
        and all(getattr(standing, bound) <= (terms[term] or 0) for bound, term in _LEAST.items())
        and all(_plain(getattr(standing, key)) == terms[term] for key, term in _SAME.items())
        and all(set(terms[term]) <= set(getattr(standing, key)) for key, term in _AMONG.items())
        and list(standing.selected) == terms.get("selected", [])
        and (standing.sums == "shown" or terms["sums"] == "hidden")
        and (standing.most_leaves is None or 0 < terms["max_leaves"] <= standing.most_leaves)
    )


def _hides(standing: StandingConsent, terms: Mapping[str, Any]) -> bool:
    """Whether a screen hides sums, and tells no fewer steps than the consent has agreed to."""
    steps: int = terms.get("least_steps", 0)
    return 0 < standing.least_steps <= steps


def standing_consent(asked: RequestedTerms) -> StandingConsent:
    """The smallest standing consent that covers ``asked``.

    Raises:
        DaemonError: an earlier version of fedmq took down the request, and left terms out.
    """
    terms = asked.details
    if asked.kind == "activation":
        raise DaemonError("each activation is asked about: approve it without --alike")
    if asked.kind == "joint model":
        raise DaemonError("each model is asked about: approve it without --alike")
    if "pair" in terms:
        raise DaemonError(
            "each correlation with another passive party's columns is asked about: approve it "
            "without --alike"
        )
    if asked.kind == "screen":
        return StandingConsent(
            peer=asked.peer,
            session="screen",
            alignment=terms["alignment"],
            sums="shown" if terms["measured"] and not terms.get("least_steps") else "hidden",
            least_steps=terms.get("least_steps", 0),
            most_rows=terms["rows"],
            least_training_rows=terms["looked_at"],
            most_bins=terms["bins"],
            most_correlated=terms.get("correlated", 0),
            most_classes=terms.get("classes") or 2,
            number_label=terms.get("classes") == 0,
        )
    if terms.get("keeps_key"):
        raise DaemonError(
            "each alignment with a kept key is asked about: approve it without --alike"
        )
    if asked.kind != "training":
        return StandingConsent(
            peer=asked.peer,
            session=asked.kind,
            alignment=asked.name,
            parties=tuple(terms["parties"]),
            normalise=tuple(terms["normalise"]),
            known_to=tuple(terms["known_to"]) if "known_to" in terms else None,
        )
    if not asked.says_all:
        raise DaemonError(
            "an earlier version of fedmq took down this request, without all of its terms: "
            "approve it alone, without --alike"
        )
    bounds = {**_MOST, **_LEAST, **_SAME, **_AMONG}
    named = {key: terms[term] for key, term in bounds.items() if terms[term] is not None}
    return StandingConsent.model_validate(
        {
            **{key: tuple(of) if isinstance(of, list) else of for key, of in named.items()},
            "peer": asked.peer,
            "session": "training",
            "sums": terms["sums"],
            "selected": tuple(terms.get("selected", ())),
            "most_leaves": terms["max_leaves"] or None,
        }
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def toml_of(standing: StandingConsent) -> str:
    """The consent as an entry of ``[[policy.approved]]``, without defaults."""
    return "\n".join(["[[policy.approved]]", *_lines(standing)]) + "\n"


def _lines(standing: StandingConsent) -> Iterator[str]:
    for key, value in standing.model_dump(mode="json", exclude_defaults=True).items():
        yield f"{key} = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_value(of)}' for key, of in value.items())} }}"
    # Strings, numbers and lists of strings are written alike in JSON and TOML.
    return json.dumps(value, ensure_ascii=False)

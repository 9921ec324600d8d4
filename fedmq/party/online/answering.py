"""How does a passive party answer an online question, and how often?

A question passes the policy, the ledger of its batch and the rate limits before the share is read.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.served_forest import Chains, RecordPlaces, is_below
from fedmq.boosting.model.share import PassiveShare
from fedmq.boosting.model.tree import DisclosedColumns
from fedmq.boosting.splits import ROOT
from fedmq.computation import computation
from fedmq.errors import DaemonError, ProtocolError, RateLimited, Refused, RowsUnavailable
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
from fedmq.party.consent.audit_log import QuestionLog
from fedmq.party.online.drift import DriftWatch
from fedmq.party.online.rows import Lookup, Reading, Rows, ServedRows, ServingSource
from fedmq.party.store.documents import ModelStore
from fedmq.protocol.online.passive import AnsweringShare, check_records

__all__ = [
    "Answering",
    "AskedShare",
    "BatchLedger",
    "HostedShare",
    "LoadedShare",
    "RateLimits",
    "load_share",
]

log = logging.getLogger(__name__)

_ANSWERS = (OnlineExits, OnlineBitmaps)
_MOST_LEDGER_BYTES = 32 * 1024 * 1024  # for the remembered batches
_MOST_SESSIONS = 64
_MOST_QUESTIONS = 4096  # per batch
_QUESTION_BYTES = 128
_PERSON_BYTES = 256
_RECORD_BITS = 32  # of a pair's number; its place is in the bits above

_Key = tuple[str, str]
"""The caller, and its session."""

Pairs = tuple[NDArray[np.uint32], NDArray[np.uint32]]
"""The pairs of a hop question, uint32 (pairs,) each: places in its ids, and records."""

_BURST_SECONDS = 10.0  # of the rate that may arrive at once
_HOUR_SECONDS = 3600.0
_MOST_BATCHES = 1024  # whose counted rows are remembered
_MOST_IDS = 100_000  # remembered for an hour; beyond, the oldest are forgotten


class Answering:
    """Answers for ``shares``, by model id, within the owner's limits and policy.

    ``consent`` raises `Refused` if the policy forbids answering. ``agree`` raises it if the policy
    forbids that many more rows; it returns whether ``until_written`` has to be awaited first, so
    that the consent is on disk.
    """

    def __init__(
        self,
        section: OnlineSection,
        question_log: QuestionLog | None,
        clock: Callable[[], float] = time.monotonic,
        consent: Callable[[Header], None] = lambda _: None,
        agree: Callable[[int], bool] = lambda _: False,
        until_written: Callable[[Header], Awaitable[None]] | None = None,
        drift: DriftWatch | None = None,
    ) -> None:
        self.shares: dict[str, HostedShare] = {}
        self.questions = 0
        """Number of questions since the start."""
        self.rate_limits = RateLimits(section, clock)
        self._ledger = BatchLedger()
        self._section = section
        self._question_log = question_log
        self._consent = consent
        self._agree = agree
        self._until_written = until_written
        self._drift = drift

    def forget_all_but(self, kept: Set[str]) -> None:
        """Keep only the shares of the models with these ids."""
        for model in set(self.shares) - kept:
            del self.shares[model]

    async def answer(self, header: Header, body: Body) -> Body | None:
        """Answer ``body``, perhaps with a refusal; None if it is no question."""
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
        # Inline: a question of 250 rows takes a few milliseconds, less than another process costs.
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
            pairs = None
            if isinstance(body, OnlineHop):
                pairs = body.rows.values, body.records.values
                # Check before any array gets the length that the records give.
                check_records(body, pairs[1], len(share.chains.left))
            self._enter(header, body, pairs, share.places)
            owed = self.rate_limits.check(
                header.sender,
                header.session,
                body,
                pairs,
                AskedShare(share.share.model_id, share.most_records),
                self._agree,
            )
            if owed and self._until_written is not None:
                await self._written(header, self._until_written)
            rows = await share.rows.about(body.ids, body.budget)
            if self._drift is not None:
                batch = header.session, body.batch
                self._drift.put_aside_asked(batch, body.model, body.ids, rows.row_of, rows.values)
            about = AnsweringShare(share.share, share.chains, rows.values, rows.row_of)
            if isinstance(body, OnlineRows):
                return about.bitmaps(body)
            assert pairs is not None
            exits = about.exits(body)
            self._ledger.answered(
                header.sender, header.session, body, pairs, exits.exits.values, share.places
            )
            return exits
        except RateLimited as error:
            return self._refusal(body, error.cause, str(error))
        except RowsUnavailable as error:
            return self._refusal(body, "data", str(error))
        except ProtocolError as error:
            log.warning("%s sent a malformed question: %s", header.sender, error)
            return self._refusal(body, "data", str(error))

    async def _written(
        self, header: Header, until_written: Callable[[Header], Awaitable[None]]
    ) -> None:
        try:
            await until_written(header)
        except Refused as error:
            raise RateLimited("rate", str(error)) from None

    def _enter(
        self,
        header: Header,
        body: OnlineHop | OnlineRows,
        pairs: Pairs | None,
        places: RecordPlaces | None,
    ) -> None:
        try:
            self._ledger.enter(header.sender, header.session, body, pairs, places)
        except RateLimited as error:
            self.rate_limits.turned_away += 1
            log.warning("%s asks for more than scores: %s", header.sender, error)
            raise

    def _refusal(self, body: OnlineHop | OnlineRows, cause: str, reason: str) -> OnlineRefusal:
        return OnlineRefusal.model_validate(
            {"batch": body.batch, "hop": body.hop, "cause": cause, "reason": reason}
        )


@dataclass(frozen=True, slots=True, eq=False)
class HostedShare:
    """The share that answers for one model; ``chains`` links its records."""

    share: PassiveShare
    chains: Chains
    rows: ServedRows
    places: RecordPlaces | None = None
    """None for a share of an earlier version, which has no places."""
    most_records: int | None = None
    """Records of one person within an hour if the owner sets no limit: enough for two scores."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedShare:
    """A share from the process that loaded it; its connections are opened afterwards."""

    share: PassiveShare
    chains: Chains
    rows: Rows | Lookup

    def columns(self, texts: Mapping[str, str]) -> DisclosedColumns:
        """The columns of the records that trees use; ``texts``: the published texts, by name."""
        return DisclosedColumns.of(self.share.lookup_table, len(self.chains), texts)

    def hosted(self, source: ServingSource) -> HostedShare:
        """The share with its rows from ``source``."""
        places = RecordPlaces.of(self.share.places) if self.share.places else None
        limit = None if places is None else 2 * places.longest_ways()
        return HostedShare(self.share, self.chains, source.served(self.rows), places, limit)


@computation("LoadShare")
def load_share(
    store: ModelStore, reading: Reading, model: str, left: tuple[int, ...], right: tuple[int, ...]
) -> LoadedShare:
    """Load the share of ``model`` and its rows, or the way to look them up.

    ``left`` and ``right`` are its chains.

    Raises:
        DaemonError: the share is another model's.
        DataError: the rows cannot be read.
    """
    share = store.passive(model)
    try:
        chains = Chains.of(left, right)
    except ValueError as error:
        raise DaemonError(f"model {model}: {error}") from None
    if len(chains) > len(share.lookup_table):
        raise DaemonError(
            f"model {model} has {len(share.lookup_table)} records here, "
            f"not {len(chains)}; the parties hold shares of different models"
        )
    if share.places and not RecordPlaces.of(share.places).fit(chains):
        raise DaemonError(f"model {model}: the order of records contradicts the share")
    rows = reading.of(share.lookup_table.feature_names, model).run()
    return LoadedShare(share, chains, rows)


class _Batch:
    """One batch: its questions by number, and each person's position in each tree."""

    __slots__ = ("answered", "bytes", "model", "places_of", "questions", "standing")

    def __init__(self, model: str, trees: int) -> None:
        self.model = model
        self.questions: dict[int, bytes] = {}
        self.places_of: dict[str, int] = {}
        self.standing: NDArray[np.int64] = np.empty((0, trees), np.int64)
        self.answered: NDArray[np.int64] = np.empty(0, np.int64)
        """Places and records of earlier questions, as one number each, ascending."""
        self.bytes = 0

    def places(self, ids: tuple[str, ...]) -> NDArray[np.int64]:
        """The place of each id in this batch; new ids begin at the roots."""
        for name in ids:
            self.places_of.setdefault(name, len(self.places_of))
        more = len(self.places_of) - len(self.standing)
        if more:
            roots = np.full((more, self.standing.shape[1]), ROOT, np.int64)
            self.standing = np.concatenate([self.standing, roots])
        return np.array([self.places_of[name] for name in ids], np.int64)

    def was_answered(self, pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of ``pairs`` earlier questions asked for."""
        if not len(self.answered):
            return np.zeros(len(pairs), np.bool_)
        spots = np.minimum(self.answered.searchsorted(pairs), len(self.answered) - 1)
        known: NDArray[np.bool_] = self.answered[spots] == pairs
        return known

    def size(self) -> int:
        """Its approximate size in bytes."""
        return (
            len(self.questions) * _QUESTION_BYTES
            + len(self.places_of) * _PERSON_BYTES
            + self.answered.nbytes
            + self.standing.nbytes
        )


class BatchLedger:
    """Records the questions of each batch, so that no batch number serves a second question.

    Mode hop needs a memory: a batch may ask about a person at one record a tree and level, on one
    path. Without it, questions at all records would give the bitmap.

    The memory is bounded, over all callers. Questions of a forgotten batch, and of earlier
    batches, are refused.
    """

    def __init__(self, most_bytes: int = _MOST_LEDGER_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._batches: OrderedDict[tuple[_Key, int], _Batch] = OrderedDict()
        self._floors: OrderedDict[_Key, int] = OrderedDict()
        """By session: the highest forgotten batch."""

    def enter(
        self,
        caller: str,
        session: str,
        body: OnlineHop | OnlineRows,
        pairs: Pairs | None,
        places: RecordPlaces | None,
    ) -> bool:
        """Record a question before it is answered; False if it is a repetition.

        ``pairs``: those of a hop question.

        Raises:
            RateLimited: its number had another question, its batch is over, or it asks about a
                person beyond one path through a tree.
        """
        key = (caller, session)
        if body.batch <= self._floors.get(key, -1):
            raise RateLimited("records", f"batch {body.batch} is over")
        batch = self._batches.get((key, body.batch))
        if batch is None:
            batch = _Batch(body.model, 0 if places is None else places.trees)
        content = _digest(body)
        known = batch.questions.get(body.hop)
        if known is not None or batch.model != body.model:
            if known == content:
                return False
            raise RateLimited(
                "records",
                (f"question {body.hop} of batch {body.batch} differs from its first copy"),
            )
        if len(batch.questions) == _MOST_QUESTIONS:
            raise RateLimited("records", f"more than {_MOST_QUESTIONS} questions in a batch")
        if pairs is not None and places is not None:
            self._walk(batch, body.ids, pairs, places)
        batch.questions[body.hop] = content
        self._keep(key, body.batch, batch)
        return True

    def answered(
        self,
        caller: str,
        session: str,
        body: OnlineHop,
        pairs: Pairs,
        exits: NDArray[np.uint32],
        places: RecordPlaces | None,
    ) -> None:
        """Note where the ``pairs`` of ``body`` left this party's records."""
        batch = self._batches.get(((caller, session), body.batch))
        if batch is None or places is None:
            return
        persons = batch.places(body.ids)[pairs[0]]
        records = (exits >> 1).astype(np.int64)
        trees = places.tree[records]
        below = 2 * places.node[records] + 1 - (exits & 1).astype(np.int64)
        deeper = is_below(below, batch.standing[persons, trees])
        batch.standing[persons[deeper], trees[deeper]] = below[deeper]

    def _walk(
        self, batch: _Batch, ids: tuple[str, ...], pairs: Pairs, places: RecordPlaces
    ) -> None:
        rows, records = pairs[0], pairs[1].astype(np.int64)
        before = len(batch.places_of)
        persons = batch.places(ids)[rows]
        numbers = persons << _RECORD_BITS | records
        fresh = ~batch.was_answered(numbers)
        trees, nodes = places.tree[records], places.node[records]
        unexpected = fresh & ~is_below(nodes, batch.standing[persons, trees])
        chosen = np.zeros_like(batch.standing)
        chosen[persons[fresh], trees[fresh]] = records[fresh]
        twice = fresh & (chosen[persons, trees] != records)
        if twice.any() or unexpected.any():
            for name in ids:
                if batch.places_of[name] >= before:
                    del batch.places_of[name]
            batch.standing = batch.standing[:before]
            raise RateLimited("records", "more than one record a tree and level about one id")
        asked = np.sort(numbers[fresh])
        batch.answered = np.insert(batch.answered, batch.answered.searchsorted(asked), asked)
        # The next question may come before this answer; it too must lie below this record.
        batch.standing[persons[fresh], trees[fresh]] = nodes[fresh]

    def _keep(self, key: _Key, number: int, batch: _Batch) -> None:
        size = batch.size()
        self._bytes += size - batch.bytes
        batch.bytes = size
        self._batches[key, number] = batch
        while self._bytes > self._most_bytes and len(self._batches) > 1:
            (other, old), forgotten = self._batches.popitem(last=False)
            self._bytes -= forgotten.bytes
            self._floors[other] = max(old, self._floors.get(other, -1))
            self._floors.move_to_end(other)
            if len(self._floors) > _MOST_SESSIONS:
                self._floors.popitem(last=False)


def _digest(body: OnlineHop | OnlineRows) -> bytes:
    """Hash everything that decides the answer; the budget does not: it shrinks on a repetition."""
    digest = hashlib.blake2b(type(body).__name__.encode(), digest_size=16)
    for name in body.ids:
        digest.update(len(name.encode()).to_bytes(4, "little") + name.encode())
    if isinstance(body, OnlineHop):
        digest.update(body.rows.data)
        digest.update(body.records.data)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class AskedShare:
    """The model that a question asks about; ``most_records`` an hour applies if no limit is set."""

    model: str = ""
    most_records: int | None = None


class _HourOfId:
    """One caller's questions about one id within an hour that begins at ``since``."""

    __slots__ = ("records", "scores", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.scores = 0
        self.records: dict[str, int] = {}
        """By model: a bit for each record."""


class RateLimits:
    """Counts the questions of each caller; ``clock`` gives seconds.

    A row counts once per batch, however often its questions are asked or repeated.
    """

    def __init__(self, limits: OnlineSection, clock: Callable[[], float]) -> None:
        self.turned_away = 0
        """Number of questions beyond a limit."""
        self._limits = limits
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        """By caller: rows that may arrive at once, and the time of this count (a token bucket)."""
        self._batches: OrderedDict[tuple[str, str, int], set[str]] = OrderedDict()
        """By caller, session and batch: the ids already counted."""
        self._hours: OrderedDict[tuple[str, str], _HourOfId] = OrderedDict()
        """By caller and id."""

    def check(
        self,
        caller: str,
        session: str,
        body: OnlineHop | OnlineRows,
        pairs: Pairs | None,
        share: AskedShare,
        agree: Callable[[int], bool],
    ) -> bool:
        """Count a question; in mode hop it asks for ``pairs`` at records of ``share``.

        ``agree`` is called last, with the number of rows not counted before; it may raise
        `Refused`. Returns its answer.

        Raises:
            RateLimited: the question exceeds a limit; nothing was counted.
        """
        counted = self._batches.setdefault((caller, session, body.batch), set())
        if len(self._batches) > _MOST_BATCHES:
            self._batches.popitem(last=False)
        fresh = set(body.ids) - counted
        if pairs is None:
            share = AskedShare()
        try:
            agreed = self._count(caller, body.ids, pairs, fresh, share, agree)
        except RateLimited:
            self.turned_away += 1
            raise
        counted |= fresh
        return agreed

    def _count(
        self,
        caller: str,
        ids: tuple[str, ...],
        pairs: Pairs | None,
        fresh: set[str],
        share: AskedShare,
        agree: Callable[[int], bool],
    ) -> bool:
        limits, now = self._limits, self._clock()
        left, hours, wanted = 0.0, list[_HourOfId](), list[int]()
        if limits.rows_per_second is not None:
            limit = limits.rows_per_second * _BURST_SECONDS
            before, since = self._buckets.get(caller, (limit, now))
            left = min(limit, before + (now - since) * limits.rows_per_second) - len(fresh)
            if left < 0:
                raise RateLimited("rate", f"more than {limits.rows_per_second} rows per second")
        most_records = limits.records_per_id or share.most_records
        if limits.scores_per_id is not None or most_records is not None:
            hours = [self._hour(caller, name, now) for name in ids]
            wanted = [0] * len(ids) if pairs is None else _wanted(len(ids), *pairs)
            for name, hour, more in zip(ids, hours, wanted, strict=True):
                most_scores = limits.scores_per_id
                if most_scores is not None and name in fresh and hour.scores >= most_scores:
                    raise RateLimited("rate", f"more than {most_scores} scores per id and hour")
                known = hour.records.get(share.model, 0)
                if most_records is not None and (known | more).bit_count() > most_records:
                    raise RateLimited(
                        "records", f"more than {most_records} records per id and hour"
                    )
        try:
            agreed = agree(len(fresh))
        except Refused as refused:
            raise RateLimited("rate", str(refused)) from None
        for name, hour, more in zip(ids, hours, wanted, strict=False):
            hour.scores += name in fresh
            if more:
                hour.records[share.model] = hour.records.get(share.model, 0) | more
        if limits.rows_per_second is not None:
            self._buckets[caller] = (left, now)
        return agreed

    def _hour(self, caller: str, name: str, now: float) -> _HourOfId:
        key = (caller, name)
        hour = self._hours.get(key)
        if hour is None or now - hour.since > _HOUR_SECONDS:
            hour = self._hours[key] = _HourOfId(now)
            if len(self._hours) > _MOST_IDS:
                self._hours.popitem(last=False)
        return hour


def _wanted(ids: int, rows: NDArray[np.uint32], records: NDArray[np.uint32]) -> list[int]:
    """By place in the ids of a question: a bit for each record that the question asks for."""
    if not len(records):
        return [0] * ids
    asked = np.zeros((ids, int(records.max()) // 8 + 1), np.uint8)
    np.bitwise_or.at(asked, (rows, records >> 3), np.left_shift(1, records & 7, dtype=np.uint8))
    return [int.from_bytes(row.tobytes(), "little") for row in asked]

"""How does a passive party answer an online question, and how often?

A question passes the policy, the ledger of its batch and the rate limits before the share is read.
What is counted per person counts people who have a row here: ids that are made up push nobody out.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

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
from fedmq.messages.inference import SealedTerms
from fedmq.messages.online import (
    QUESTIONS,
    OnlineBitmaps,
    OnlineExits,
    OnlineHop,
    OnlineMaskAsk,
    OnlineMasks,
    OnlinePing,
    OnlinePong,
    OnlineProducts,
    OnlineQuestion,
    OnlineRefusal,
    OnlineRows,
    OnlineSealed,
)
from fedmq.party.configuration.online import OnlineSection
from fedmq.party.consent.audit_log import QuestionLog
from fedmq.party.online.drift import DriftWatch
from fedmq.party.online.rows import Lookup, Reading, Rows, ServedRows, ServingSource
from fedmq.party.online.sealed_answers import SealedAnswers
from fedmq.party.store.documents import ModelStore
from fedmq.protocol.online.passive import AnsweringShare, check_records
from fedmq.protocol.online.sealed_passive import SealedShare

__all__ = [
    "ASKED_FILE",
    "Answering",
    "AskedPeople",
    "AskedShare",
    "BatchLedger",
    "HostedShare",
    "LoadedShare",
    "RateLimits",
    "hashed_person",
    "load_share",
]

log = logging.getLogger(__name__)

ASKED_FILE = "asked.sqlite"
"""In the state folder: where a passive party keeps what was asked about each person."""

_ANSWERS = (OnlineExits, OnlineBitmaps, OnlineProducts)
_MOST_LEDGER_BYTES = 32 * 1024 * 1024  # for the remembered batches
_IDLE_LEDGER_BYTES = 2 * 1024 * 1024  # beyond it, batches are forgotten that nobody asks about
_IDLE_SECONDS = 60.0
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
_SEALED_SCORES = 10
"""Of a person within an hour, if the owner sets no limit: each tells an active party that lies 30
bits of its choice."""
_MOST_BATCHES = 1024  # whose counted rows are remembered
_MOST_PEOPLE = (
    1_000_000  # asked about within an hour, by all callers; each takes some hundred bytes
)
_WRITE_SECONDS = 1.0  # between two writes of who was asked about


class Answering:
    """Answers for ``shares``, by model id, within the owner's limits and policy.

    ``consent`` raises `Refused` if the policy forbids answering. ``agree`` raises it if the policy
    forbids that many more rows; it returns whether ``until_written`` has to be awaited first, so
    that the consent is on disk. ``send`` takes (recipient, body, session, seconds of its use).
    ``explains``: whether the owner gives reasons.
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
        asked: AskedPeople | None = None,
        send: Callable[[str, Body, str, float], None] = lambda *_: None,
        explains: Callable[[], bool] = lambda: True,
    ) -> None:
        self._explains = explains
        self.shares: dict[str, HostedShare] = {}
        self.questions = 0
        """Number of questions since the start."""
        self.rate_limits = RateLimits(section, clock, asked)
        self._ledger = BatchLedger(clock=clock)
        self._section = section
        self._question_log = question_log
        self._consent = consent
        self._agree = agree
        self._until_written = until_written
        self._drift = drift
        self._sealed = SealedAnswers(send)

    def forget_all_but(self, kept: Set[str]) -> None:
        """Keep only the shares of the models with these ids."""
        for model in set(self.shares) - kept:
            del self.shares[model]

    def close(self) -> None:
        """Compute no more answers."""
        self._sealed.close()

    async def answer(self, header: Header, body: Body) -> Body | None:
        """Answer ``body``, perhaps with a refusal; None if it is no question."""
        if isinstance(body, OnlinePing):
            return OnlinePong()
        if not isinstance(body, QUESTIONS):
            return None
        self.questions += 1
        answer = await self._answer(header, body)
        if self._drift is not None and self._drift.shows_alarm and isinstance(answer, _ANSWERS):
            answer = answer.model_copy(update={"drifts": True})
        if self._question_log is not None:
            outcome = answer.cause if isinstance(answer, OnlineRefusal) else "yes"
            self._question_log.note(
                header.sender, header.session, body.model, body.mode, body.ids, outcome
            )
        return answer

    def answer_neighbour(self, sender: str, body: Body) -> Body | None:
        """Answer ``sender``, another passive party, about masks; None if there is no answer."""
        if isinstance(body, OnlineMasks):
            self._sealed.take(sender, body)
        elif isinstance(body, OnlineMaskAsk):
            share = self.shares.get(body.model)
            if share is not None and share.sealed is not None:
                return self._sealed.given(body, sender, share.sealed)
        return None

    async def _answer(self, header: Header, body: OnlineQuestion) -> Body | None:
        # Inline: a question of 250 rows takes a few milliseconds, less than another process costs.
        try:
            self._consent(header)
        except Refused as error:
            return self._refusal(body, "policy", str(error))
        if body.mode not in self._section.modes:
            return self._refusal(body, "mode", f"mode {body.mode} is not answered here")
        share = self.shares.get(body.model)
        if share is None or not share.answers(body):
            return self._refusal(body, "model", f"model {body.model} is not served here")
        reasons = isinstance(body, OnlineSealed) and body.reasons
        if reasons and not self._explains():
            return self._refusal(body, "policy", "no reasons are given here (explain = none)")
        try:
            pairs = None
            if isinstance(body, OnlineHop):
                pairs = body.rows.values, body.records.values
                # Check before any array gets the length that the records give.
                check_records(body, pairs[1], len(share.chains.left))
            self._enter(header, body, pairs, share.places)
            asked = AskedShare(
                share.share.model_id,
                share.most_records,
                _SEALED_SCORES if isinstance(body, OnlineSealed) else None,
                1 + share.passive if reasons else 1,
            )
            owed = self.rate_limits.check(
                header.sender, header.session, body, pairs, asked, self._agree
            )
            if owed and self._until_written is not None:
                await self._written(header, self._until_written)
            rows = await share.rows.about(body.ids, body.budget)
            self.rate_limits.count(header.sender, header.session, body, pairs, asked, rows.row_of)
            if self._drift is not None:
                batch = header.session, body.batch
                self._drift.put_aside_asked(batch, body.model, body.ids, rows.row_of, rows.values)
            if isinstance(body, OnlineSealed):
                places = rows.places(body.ids)
                assert share.sealed is not None
                return await self._sealed.products(
                    header, body, share.sealed, rows.values[places], places < 0
                )
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
        body: OnlineQuestion,
        pairs: Pairs | None,
        places: RecordPlaces | None,
    ) -> None:
        try:
            self._ledger.enter(header.sender, header.session, body, pairs, places)
        except RateLimited as error:
            self.rate_limits.turned_away += 1
            log.warning("%s asks for more than scores: %s", header.sender, error)
            raise

    def _refusal(self, body: OnlineQuestion, cause: str, reason: str) -> OnlineRefusal:
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
    sealed: SealedShare | None = None
    """What multiplies in mode sealed; None where the model was activated in another."""

    @property
    def passive(self) -> int:
        """How many passive parties multiply in mode sealed."""
        return 0 if self.sealed is None else self.sealed.share.passive

    def answers(self, question: OnlineQuestion) -> bool:
        """Whether the share is one for ``question``: of its training, sealed under its key."""
        if not isinstance(question, OnlineSealed):
            return question.training in ("", self.share.training)
        return self.sealed is not None and self.sealed.share.key.seed == question.key


@dataclass(frozen=True, slots=True, eq=False)
class LoadedShare:
    """A share from the process that loaded it; its connections are opened afterwards."""

    share: PassiveShare
    chains: Chains
    rows: Rows | Lookup
    sealed: SealedShare | None = None

    def columns(self, texts: Mapping[str, str]) -> DisclosedColumns:
        """The columns of the records that trees use; ``texts``: the published texts, by name."""
        return DisclosedColumns.of(self.share.lookup_table, len(self.chains), texts)

    def hosted(self, source: ServingSource) -> HostedShare:
        """The share with its rows from ``source``."""
        places = RecordPlaces.of(self.share.places) if self.share.places else None
        limit = None if places is None else 2 * places.longest_ways()
        rows = source.served(self.rows)
        return HostedShare(self.share, self.chains, rows, places, limit, self.sealed)


@computation("LoadShare")
def load_share(
    store: ModelStore,
    reading: Reading,
    model: str,
    left: tuple[int, ...],
    right: tuple[int, ...],
    terms: SealedTerms | None = None,
) -> LoadedShare:
    """Load the share of ``model`` and its rows, or the way to look them up.

    ``left`` and ``right`` are its chains; ``terms`` are given in mode sealed.

    Raises:
        DaemonError: the share is another model's.
        Refused: the terms do not fit the share.
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
    sealed = None if terms is None else SealedShare.of(share, terms)
    rows = reading.of(share.lookup_table.feature_names, model).run()
    return LoadedShare(share, chains, rows, sealed)


class _Batch:
    """One batch: its questions by number, and each person's position in each tree."""

    __slots__ = ("answered", "asked_at", "bytes", "model", "places_of", "questions", "standing")

    def __init__(self, model: str, trees: int) -> None:
        self.model = model
        self.asked_at = 0.0
        """When a question of it came last."""
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

    def take_once(self, ids: tuple[str, ...]) -> None:
        """Note that ``ids`` were asked about in this batch; RateLimited if one was before."""
        fresh = dict.fromkeys(ids)
        if len(fresh) < len(ids) or not self.places_of.keys().isdisjoint(fresh):
            raise RateLimited("records", "more than one sealed question of a batch about one id")
        for name in fresh:
            self.places_of[name] = len(self.places_of)

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

    The memory is bounded, over all callers, and small once nobody asks. Questions of a forgotten
    batch, and of earlier batches, are refused.
    """

    def __init__(
        self,
        most_bytes: int = _MOST_LEDGER_BYTES,
        idle_bytes: int = _IDLE_LEDGER_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most_bytes = most_bytes
        self._idle_bytes = idle_bytes
        self._clock = clock
        self._bytes = 0
        self._batches: OrderedDict[tuple[_Key, int], _Batch] = OrderedDict()
        self._floors: OrderedDict[_Key, int] = OrderedDict()
        """By session: the highest forgotten batch."""

    def enter(
        self,
        caller: str,
        session: str,
        body: OnlineQuestion,
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
        batch.asked_at = self._clock()
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
        if isinstance(body, OnlineSealed):
            batch.take_once(body.ids)
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
        while len(self._batches) > 1:
            oldest = next(iter(self._batches.values()))
            is_idle = self._clock() - oldest.asked_at > _IDLE_SECONDS
            if self._bytes <= (self._idle_bytes if is_idle else self._most_bytes):
                break
            (other, old), forgotten = self._batches.popitem(last=False)
            self._bytes -= forgotten.bytes
            self._floors[other] = max(old, self._floors.get(other, -1))
            self._floors.move_to_end(other)
            if len(self._floors) > _MOST_SESSIONS:
                self._floors.popitem(last=False)


def _digest(body: OnlineQuestion) -> bytes:
    """Hash everything that decides the answer; the budget does not: it shrinks on a repetition."""
    digest = hashlib.blake2b(type(body).__name__.encode(), digest_size=16)
    for name in body.ids:
        digest.update(len(name.encode()).to_bytes(4, "little") + name.encode())
    match body:
        case OnlineHop():
            digest.update(body.rows.data)
            digest.update(body.records.data)
        case OnlineSealed():
            digest.update(bytes([body.reasons]))
            for part in (body.key, body.mask, *body.seeds):
                digest.update(len(part).to_bytes(1) + part)
            digest.update(body.words.data)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class AskedShare:
    """The model that a question asks about; its limits an hour apply if the owner sets none."""

    model: str = ""
    most_records: int | None = None
    most_scores: int | None = None
    sums: int = 1
    """What the question tells of a person: each counts as a score."""


class _CountedBatch:
    """The ids of one batch whose rows were counted, and those whose scores were."""

    __slots__ = ("rows", "scores")

    def __init__(self) -> None:
        self.rows: set[str] = set()
        self.scores: set[str] = set()


class RateLimits:
    """Counts the questions of each caller; ``clock`` gives seconds.

    A row counts once per batch, however often its questions are asked or repeated. ``asked`` counts
    per person.
    """

    def __init__(
        self, limits: OnlineSection, clock: Callable[[], float], asked: AskedPeople | None = None
    ) -> None:
        self.turned_away = 0
        """Number of questions beyond a limit."""
        self.asked = asked or AskedPeople(None, clock)
        self._limits = limits
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        """By caller: rows that may arrive at once, and the time of this count (a token bucket)."""
        self._batches: OrderedDict[tuple[str, str, int], _CountedBatch] = OrderedDict()
        """By caller, session and batch."""

    def check(
        self,
        caller: str,
        session: str,
        body: OnlineQuestion,
        pairs: Pairs | None,
        share: AskedShare,
        agree: Callable[[int], bool],
    ) -> bool:
        """Count the rows of a question; in mode hop it asks for ``pairs`` at records of ``share``.

        `count` has to follow, once it is known who of them has a row here. ``agree`` is called
        last, with the number of rows not counted before; it may raise `Refused`. Returns its
        answer.

        Raises:
            RateLimited: the question exceeds a limit; nothing was counted.
        """
        batch = self._batch(caller, session, body.batch)
        fresh = set(body.ids) - batch.rows
        try:
            left, now = 0.0, self._clock()
            per_second = self._limits.rows_per_second
            if per_second is not None:
                most = per_second * _BURST_SECONDS
                before, since = self._buckets.get(caller, (most, now))
                left = min(most, before + (now - since) * per_second) - len(fresh)
                if left < 0:
                    raise RateLimited("rate", f"more than {per_second} rows per second")
            self._more(caller, batch, body.ids, pairs, share)
            try:
                agreed = agree(len(fresh))
            except Refused as refused:
                raise RateLimited("rate", str(refused)) from None
        except RateLimited:
            self.turned_away += 1
            raise
        if per_second is not None:
            self._buckets[caller] = (left, now)
        batch.rows |= fresh
        return agreed

    def count(
        self,
        caller: str,
        session: str,
        body: OnlineQuestion,
        pairs: Pairs | None,
        share: AskedShare,
        known: Container[str],
    ) -> None:
        """Count what a question asks about the people who are ``known`` here; others cost nothing.

        Raises:
            RateLimited: the question exceeds a limit by what others asked meanwhile, or more people
                are asked about within the hour than are counted; nothing was counted.
        """
        batch = self._batch(caller, session, body.batch)
        try:
            more = self._more(caller, batch, body.ids, pairs, share)
            counted = {name: asks for name, asks in more.items() if name in known}
            self.asked.add(caller, share.model, counted)
        except RateLimited:
            self.turned_away += 1
            raise
        batch.scores |= counted.keys()

    def _batch(self, caller: str, session: str, number: int) -> _CountedBatch:
        batch = self._batches.setdefault((caller, session, number), _CountedBatch())
        if len(self._batches) > _MOST_BATCHES:
            self._batches.popitem(last=False)
        return batch

    def _more(
        self,
        caller: str,
        batch: _CountedBatch,
        ids: tuple[str, ...],
        pairs: Pairs | None,
        share: AskedShare,
    ) -> dict[str, tuple[int, int]]:
        """By id: the scores, and the records as bits, that a question adds; none without limits.

        Raises:
            RateLimited: they are too many.
        """
        most_scores = self._limits.scores_per_id or share.most_scores
        most_records = self._limits.records_per_id or share.most_records if pairs else None
        if most_scores is None and most_records is None:
            return {}
        bits = [0] * len(ids) if pairs is None else _wanted(len(ids), *pairs)
        more: dict[str, tuple[int, int]] = {}
        for name, wanted in zip(ids, bits, strict=True):
            asked = self.asked.of(caller, share.model, name)
            score = share.sums * (name not in batch.scores)
            records = wanted | more.get(name, (0, 0))[1]
            if most_scores is not None and asked.scores + score > most_scores:
                raise RateLimited("rate", f"more than {most_scores} scores per id and hour")
            if most_records is not None and (asked.records | records).bit_count() > most_records:
                raise RateLimited("records", f"more than {most_records} records per id and hour")
            more[name] = score, records
        return more


class Asked(NamedTuple):
    """What a caller has asked about one person: ``records`` has a bit for each of the model's."""

    scores: int
    records: int


class AskedPeople:
    """What was asked about each person within the hour that began with a question.

    Nothing is forgotten before the hour is over: questions about more people are refused. The file
    at ``path`` keeps it over a restart, with people as keyed hashes; what was asked in the last
    second before a crash is lost. Without a path nothing is kept.
    """

    def __init__(
        self,
        path: Path | None,
        clock: Callable[[], float] = time.monotonic,
        most_people: int = _MOST_PEOPLE,
    ) -> None:
        self._path = path
        self._clock = clock
        self._most_people = most_people
        self._begun = clock()
        self._scores: dict[tuple[str, str], int] = {}
        """By caller and id."""
        self._records: dict[tuple[str, str], dict[str, int]] = {}
        """By caller and model, then by id."""
        self._key = secrets.token_bytes(32)
        self._before: dict[tuple[str, str, bytes], int] = {}
        """From before a restart: by caller, model (empty for scores) and hashed id."""
        self._unwritten: set[tuple[str, str, str]] = set()
        self._writing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def of(self, caller: str, model: str, name: str) -> Asked:
        """What ``caller`` has asked about the id ``name`` within the hour."""
        if self._clock() - self._begun > _HOUR_SECONDS:
            self._forget()
        scores = self._scores.get((caller, name), 0)
        records = self._records.get((caller, model), {}).get(name, 0)
        if self._before:
            person = self._hashed(name)
            scores = max(scores, self._before.get((caller, "", person), 0))
            records |= self._before.get((caller, model, person), 0) if model else 0
        return Asked(scores, records)

    def add(self, caller: str, model: str, more: Mapping[str, tuple[int, int]]) -> None:
        """Add scores and records by id; RateLimited, and nothing is added, for too many people."""
        if not self._scores and not self._before:
            self._begun = self._clock()
        new = sum((caller, name) not in self._scores for name in more)
        if len(self._scores) + len(self._before) + new > self._most_people:
            raise RateLimited(
                "rate", f"more than {self._most_people:,} people were asked about within the hour"
            )
        records = self._records.setdefault((caller, model), {})
        for name, (score, bits) in more.items():
            before = self.of(caller, model, name)
            self._scores[caller, name] = before.scores + score
            self._unwritten.add((caller, "", name))
            if bits:
                records[name] = before.records | bits
                self._unwritten.add((caller, model, name))
        if self._path is not None and self._unwritten and self._writing is None:
            self._writing = asyncio.create_task(self._write_soon(self._path))

    def read(self) -> None:
        """Read what was asked before a restart, unless its hour is over."""
        if self._path is None or not self._path.exists():
            return
        try:
            with contextlib.closing(sqlite3.connect(self._path)) as file:
                begun, key = file.execute("SELECT begun, key FROM hour").fetchone() or (0.0, b"")
                found = file.execute("SELECT caller, model, person, count FROM asked").fetchall()
        except sqlite3.Error as error:
            log.error("%s: what was asked is forgotten: %s", self._path, error)
            self._path.unlink(missing_ok=True)
            return
        # A clock that was set back does not make the hour longer than one from now.
        age = max(0.0, time.time() - begun)
        if age > _HOUR_SECONDS or not key:
            return
        self._begun, self._key = self._clock() - age, key
        self._before = {
            (caller, model, person): int.from_bytes(count, "little")
            for caller, model, person, count in found
        }

    async def close(self) -> None:
        """Write what is not written yet."""
        self._closing.set()
        if self._writing is not None:
            await self._writing

    def _forget(self) -> None:
        self._begun, self._key = self._clock(), secrets.token_bytes(32)
        for kept in (self._scores, self._records, self._before, self._unwritten):
            kept.clear()

    def _hashed(self, name: str) -> bytes:
        return hashed_person(name, self._key)

    async def _write_soon(self, path: Path) -> None:
        # One writer at a time, never cancelled.
        while self._unwritten:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), _WRITE_SECONDS)
            written, self._unwritten = self._unwritten, set()
            rows = []
            for caller, model, name in written:
                count = self._scores.get((caller, name), 0)
                if model:
                    count = self._records.get((caller, model), {}).get(name, 0)
                size = (count.bit_length() + 7) // 8
                rows.append((caller, model, self._hashed(name), count.to_bytes(size, "little")))
            begun = time.time() - (self._clock() - self._begun)
            try:
                await asyncio.to_thread(_write_asked, path, begun, self._key, rows)
            except (sqlite3.Error, OSError) as error:
                log.error("%s: what was asked is not kept: %s", path, error)
                if self._closing.is_set():
                    break
                self._unwritten |= written
        self._writing = None


def hashed_person(name: str, key: bytes) -> bytes:
    """What stands for the id ``name`` in the file of `AskedPeople` with this ``key``."""
    return hashlib.blake2b(name.encode(), digest_size=16, key=key).digest()


def _write_asked(
    path: Path, begun: float, key: bytes, rows: Sequence[tuple[str, str, bytes, bytes]]
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("CREATE TABLE IF NOT EXISTS hour (begun REAL NOT NULL, key BLOB NOT NULL)")
        file.execute(
            "CREATE TABLE IF NOT EXISTS asked (caller TEXT, model TEXT, person BLOB, count BLOB,"
            " PRIMARY KEY (caller, model, person)) WITHOUT ROWID"
        )
        if (key,) not in file.execute("SELECT key FROM hour").fetchall():
            file.execute("DELETE FROM asked")
            file.execute("DELETE FROM hour")
            file.execute("INSERT INTO hour VALUES (?, ?)", (begun, key))
        file.executemany("INSERT OR REPLACE INTO asked VALUES (?, ?, ?, ?)", rows)


def _wanted(ids: int, rows: NDArray[np.uint32], records: NDArray[np.uint32]) -> list[int]:
    """By place in the ids of a question: a bit for each record that the question asks for."""
    if not len(records):
        return [0] * ids
    asked = np.zeros((ids, int(records.max()) // 8 + 1), np.uint8)
    np.bitwise_or.at(asked, (rows, records >> 3), np.left_shift(1, records & 7, dtype=np.uint8))
    return [int.from_bytes(row.tobytes(), "little") for row in asked]

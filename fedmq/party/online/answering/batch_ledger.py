"""What was asked under each batch, so that no batch number is used for a second question.

Mode hop needs a memory: a batch may ask about a person at one record a tree and level, on one way.
Without it, questions at all records would give the bitmap.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.served_forest import RecordPlaces, is_below
from fedmq.boosting.splits import ROOT
from fedmq.errors import RateLimited
from fedmq.messages.online import OnlineHop, OnlineRows

__all__ = ["BatchLedger"]

_MOST_BYTES = 32 * 1024 * 1024  # for the batches that are remembered
_MOST_SESSIONS = 64
_MOST_QUESTIONS = 4096  # of a batch
_QUESTION_BYTES = 128
_ID_BYTES = 256
_RECORD_BITS = 32  # of a pair's number; its place stands above them

_Key = tuple[str, str]
"""Who asks, and the session."""


class _Batch:
    """One batch: its questions by number, and where each person has come to stand in each tree."""

    __slots__ = ("answered", "bytes", "model", "places_of", "questions", "standing")

    def __init__(self, model: str, trees: int) -> None:
        self.model = model
        self.questions: dict[int, bytes] = {}
        self.places_of: dict[str, int] = {}
        self.standing: NDArray[np.int64] = np.empty((0, trees), np.int64)
        self.answered: NDArray[np.int64] = np.empty(0, np.int64)
        """Places and records that were asked about before, as one number each, ascending."""
        self.bytes = 0

    def places(self, ids: tuple[str, ...]) -> NDArray[np.int64]:
        """Where each id stands in this batch; new ones begin at the roots."""
        for name in ids:
            self.places_of.setdefault(name, len(self.places_of))
        more = len(self.places_of) - len(self.standing)
        if more:
            roots = np.full((more, self.standing.shape[1]), ROOT, np.int64)
            self.standing = np.concatenate([self.standing, roots])
        return np.array([self.places_of[name] for name in ids], np.int64)

    def was_answered(self, pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of ``pairs`` were asked about before."""
        if not len(self.answered):
            return np.zeros(len(pairs), np.bool_)
        spots = np.minimum(self.answered.searchsorted(pairs), len(self.answered) - 1)
        known: NDArray[np.bool_] = self.answered[spots] == pairs
        return known

    def size(self) -> int:
        """About how many bytes it takes."""
        return (
            len(self.questions) * _QUESTION_BYTES
            + len(self.places_of) * _ID_BYTES
            + self.answered.nbytes
            + self.standing.nbytes
        )


class BatchLedger:
    """The batches of the last while, of all callers, in bounded memory.

    Of a batch that had to be forgotten, and of those before it, nothing is answered any more.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._batches: OrderedDict[tuple[_Key, int], _Batch] = OrderedDict()
        self._floors: OrderedDict[_Key, int] = OrderedDict()
        """By session: the highest batch that was forgotten."""

    def enter(
        self, caller: str, session: str, body: OnlineHop | OnlineRows, places: RecordPlaces | None
    ) -> bool:
        """Write down a question before it is answered; False if it was asked before.

        Raises:
            RateLimited: its number had another question, its batch is over, or it asks about a
                person beyond one way through a tree.
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
                "records", f"question {body.hop} of batch {body.batch} was another one"
            )
        if len(batch.questions) == _MOST_QUESTIONS:
            raise RateLimited("records", f"more than {_MOST_QUESTIONS} questions in a batch")
        if isinstance(body, OnlineHop) and places is not None:
            self._walk(batch, body, places)
        batch.questions[body.hop] = content
        self._keep(key, body.batch, batch)
        return True

    def answered(
        self,
        caller: str,
        session: str,
        body: OnlineHop,
        exits: NDArray[np.uint32],
        places: RecordPlaces | None,
    ) -> None:
        """Note where the pairs of ``body`` have left this party's records."""
        batch = self._batches.get(((caller, session), body.batch))
        if batch is None or places is None:
            return
        persons = batch.places(body.ids)[body.rows.numpy()]
        records = (exits >> 1).astype(np.int64)
        trees = places.tree[records]
        below = 2 * places.node[records] + 1 - (exits & 1).astype(np.int64)
        deeper = is_below(below, batch.standing[persons, trees])
        batch.standing[persons[deeper], trees[deeper]] = below[deeper]

    def _walk(self, batch: _Batch, body: OnlineHop, places: RecordPlaces) -> None:
        records = body.records.numpy().astype(np.int64)
        before = len(batch.places_of)
        persons = batch.places(body.ids)[body.rows.numpy()]
        pairs = persons << _RECORD_BITS | records
        fresh = ~batch.was_answered(pairs)
        trees, nodes = places.tree[records], places.node[records]
        strays = fresh & ~is_below(nodes, batch.standing[persons, trees])
        chosen = np.zeros_like(batch.standing)
        chosen[persons[fresh], trees[fresh]] = records[fresh]
        twice = fresh & (chosen[persons, trees] != records)
        if twice.any() or strays.any():
            for name in body.ids:
                if batch.places_of[name] >= before:
                    del batch.places_of[name]
            batch.standing = batch.standing[:before]
            raise RateLimited("records", "more than one record a tree and level about one id")
        asked = np.sort(pairs[fresh])
        batch.answered = np.insert(batch.answered, batch.answered.searchsorted(asked), asked)
        # What is asked meanwhile, before this is answered, has to lie below it already.
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
    """Of all that decides the answer; the budget does not, and shrinks when a question repeats."""
    digest = hashlib.blake2b(type(body).__name__.encode(), digest_size=16)
    for name in body.ids:
        digest.update(len(name.encode()).to_bytes(4, "little") + name.encode())
    if isinstance(body, OnlineHop):
        digest.update(body.rows.numpy().tobytes())
        digest.update(body.records.numpy().tobytes())
    return digest.digest()

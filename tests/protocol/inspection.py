"""What a wiretap finds: which of the known secrets lie in messages to those who must not know them.

A secret is looked for as numbers (scalars and arrays of any message), as bytes (in whatever an
engine calls opaque, at any offset), as one bit per row, and as text. Only envelopes are needed, so
the tap may sit on any transport.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.gradients import Gradients
from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.boosting.model.tree import LEAF, LookupTable
from fedmq.boosting.objectives.registry import objective_of
from fedmq.messages.array import Array, Bitmap
from fedmq.messages.codec import encode
from fedmq.messages.envelope import Envelope
from fedmq.protocol.training.model import Round

_LARGE = 2**24  # smaller integers are row numbers, pieces, lengths: they mean nothing by themselves
_PLACE_BITS = 20
_TELLING_ROWS = 16  # two-valued vectors over fewer rows are alike by chance


@dataclass(frozen=True)
class Numbers:
    """Values of which not even one may be sent; ``readers`` may know them."""

    what: str
    readers: Collection[str]
    values: NDArray[Any]


@dataclass(frozen=True)
class Bits:
    """One bit for each of ``rows`` (ascending), which may not be sent for all of them together."""

    what: str
    readers: Collection[str]
    rows: NDArray[np.integer]
    values: NDArray[np.bool_]


@dataclass(frozen=True)
class Codes:
    """Small numbers, one per row: telling only in their sequence."""

    what: str
    readers: Collection[str]
    values: NDArray[np.integer]


@dataclass(frozen=True)
class Texts:
    """Names that may not be sent."""

    what: str
    readers: Collection[str]
    values: Collection[str]


Secret = Numbers | Bits | Codes | Texts


def leaks(envelopes: Sequence[Envelope], secrets: Sequence[Secret]) -> set[str]:
    """One line for each kind of message that tells a secret to someone who is no reader of it."""
    found = set()
    sought = [_Search(secret) for secret in secrets]
    hidden: dict[str, _Hidden] = {}
    for envelope in envelopes:
        header = envelope.header
        if header.recipient not in hidden:
            hidden[header.recipient] = _Hidden(
                [search for search in sought if header.recipient not in search.secret.readers]
            )
        for secret in hidden[header.recipient].told_by(envelope):
            found.add(f"{header.kind} to {header.recipient} tells {secret.what}")
    return found


class _Message:
    """One envelope, taken apart."""

    def __init__(self, envelope: Envelope) -> None:
        data = encode(envelope)
        self.data = data
        padded = data + bytes(16)
        self.words = np.concatenate(
            [np.frombuffer(padded, "<u8", len(data) // 8, offset) for offset in range(8)]
        )
        self.arrays = [part for part in _parts(envelope.body) if isinstance(part, np.ndarray)]
        scalars = [part for part in _parts(envelope.body) if isinstance(part, int | float)]
        self.numbers = [*self.arrays, *(np.array([scalar]) for scalar in scalars)]


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, Array | Bitmap):
        yield value.numpy().ravel()
    elif isinstance(value, BaseModel):
        yield from _parts(dict(value))
    elif isinstance(value, Mapping):
        for held in value.values():
            yield from _parts(held)
    elif isinstance(value, tuple):
        for held in value:
            yield from _parts(held)
    else:
        yield value


class _Search:
    """The forms in which a secret may travel."""

    def __init__(self, secret: Secret) -> None:
        self.secret = secret
        self.floats, self.integers = np.empty(0), np.empty(0, np.int64)
        self.words = np.empty(0, np.uint64)
        self.texts: list[bytes] = []
        match secret:
            case Numbers(_, _, values) if values.dtype.kind == "f":
                chosen = values[np.isfinite(values) & ~np.isin(values, (0, 1))]
                self.floats = np.unique(np.concatenate([chosen, chosen.astype(np.float32)]))
                forms = [_words(chosen, form) for form in ("<f4", "<f8")]
                self.words = np.concatenate(forms)
            case Numbers(_, _, values):
                self.integers = np.unique(values[np.abs(values) > _LARGE])
                forms = [_words(self.integers, form) for form in ("<i8", "<f4", "<f8")]
                self.words = np.concatenate(forms)
            case Codes(_, _, values):
                self.words = np.concatenate([_words(values, form) for form in ("<u1", "<u2")])
            case Bits(_, _, _, values):
                packed = np.frombuffer(np.packbits(values).tobytes(), np.uint8)
                whole = packed[: len(values) // 8]
                self.words = np.concatenate([_words(whole, "u1"), _words(~whole, "u1")])
            case Texts(_, _, names):
                self.texts = [name.encode() for name in names]

    def hits(
        self, message: _Message, words: NDArray[np.uint64], numbers: Sequence[NDArray[Any]]
    ) -> bool:
        """Whether it lies in a message, of whose words and numbers these may be secrets."""
        if any(text in message.data for text in self.texts):
            return True
        if isinstance(self.secret, Bits) and any(map(self._is_bit_by_bit, message.arrays)):
            return True
        own = words[np.isin(words, self.words, kind="sort")]
        alike = [_among(values, self.floats, self.integers) for values in numbers]
        if len(own) or any(map(len, alike)):  # shown beside a failed test
            places = {word.tobytes().hex(): message.data.find(word.tobytes()) for word in own}
            print(f"{self.secret.what}: bytes at {places}, numbers {alike}, {message.data[:200]!r}")
            return True
        return False

    def _is_bit_by_bit(self, array: NDArray[Any]) -> bool:
        bits = self.secret.values  # type: ignore[union-attr]
        if len(bits) < _TELLING_ROWS or len(array) != len(bits):
            return False
        return any(np.array_equal(array == value, bits) for value in np.unique(array)[:2])


class _Hidden:
    """All that one recipient may not be told: most messages hold no number of it at all."""

    def __init__(self, searches: Sequence[_Search]) -> None:
        self._searches = searches
        none = np.empty(0)
        self._floats = np.unique(np.concatenate([none, *(each.floats for each in searches)]))
        self._integers = np.unique(
            np.concatenate([none.astype(np.int64), *(each.integers for each in searches)])
        )
        self._words = np.unique(
            np.concatenate([none.astype(np.uint64), *(each.words for each in searches)])
        )
        self._places = np.zeros(1 << _PLACE_BITS, np.bool_)
        self._places[_place(self._words)] = True

    def told_by(self, envelope: Envelope) -> list[Secret]:
        """The secrets that lie in a message."""
        if not self._searches:
            return []
        message = _Message(envelope)
        alike = message.words[self._places[_place(message.words)]]
        words = np.intersect1d(alike, self._words)
        numbers = [
            found
            for values in message.numbers
            if len(found := _among(values, self._floats, self._integers))
        ]
        return [search.secret for search in self._searches if search.hits(message, words, numbers)]


def _place(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Where a word is noted: words that differ seldom share a place."""
    return (words * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - _PLACE_BITS)


def _among(
    values: NDArray[Any], floats: NDArray[np.floating], integers: NDArray[np.integer]
) -> NDArray[Any]:
    """Those of ``values`` that are among the numbers."""
    if values.dtype.kind == "f":
        return values[np.isin(values, floats) | np.isin(values, integers)]
    if values.dtype.kind in "iu" and values.dtype.itemsize > 1:
        return values[np.isin(values, integers)]
    return values[:0]


def _words(values: NDArray[Any], form: str) -> NDArray[np.uint64]:
    """Each 8 bytes of ``values`` in ``form``, but those that may well come about by chance."""
    with np.errstate(over="ignore"):
        data = values.astype(form).tobytes()
    step = np.dtype(form).itemsize
    starts = np.arange(0, len(data) - 7, step)
    windows = np.frombuffer(data, np.uint8)[starts[:, None] + np.arange(8)]
    ordered = np.sort(windows, axis=1)
    distinct = 1 + (np.diff(ordered, axis=1) != 0).sum(axis=1) - (ordered[:, 0] == 0)
    telling = windows[distinct >= (4 if step < 4 else 2)]
    return np.unique(np.ascontiguousarray(telling).view("<u8").ravel())


# What there is to keep secret in a training


def secrets_of(
    columns: Mapping[str, NDArray[np.float32]],
    label: NDArray[np.float32],
    evaluation: NDArray[np.bool_],
    shares: Mapping[str, ActiveShare | PassiveShare],
    *,
    hides_rows: bool = False,
) -> list[Secret]:
    """All that parties must keep from each other; ``columns`` by party, the active one first.

    ``hides_rows``: who stands in a node, and who of them goes left, is the active party's alone.
    """
    active, *_ = columns
    share = shares[active]
    assert isinstance(share, ActiveShare)
    secrets: list[Secret] = [*_labels(active, label), *_trees(active, share)]
    for party, values in columns.items():
        table = shares[party].lookup_table
        secrets += _columns(party, values, table, values[~evaluation], share.params.max_bin)
    tables = [shares[party].lookup_table for party in share.parties]
    return secrets + list(
        _growth(share, tables, list(columns.values()), label, evaluation, hides_rows)
    )


def _labels(active: str, label: NDArray[np.float32]) -> Iterator[Secret]:
    rows = np.arange(len(label))
    for value in np.unique(label)[1:].tolist():
        yield Bits("labels", [active], rows, label == value)
        yield Bits("labels", [active], rows, label >= value)
    yield Codes("labels", [active], label.astype(np.int64))


def _trees(active: str, share: ActiveShare) -> Iterator[Secret]:
    trees = share.trees
    weights = np.concatenate([tree.weight[tree.is_leaf] for tree in trees])
    yield Numbers("leaf weights", [active], weights)
    yield Numbers("gains", [active], np.concatenate([tree.gain for tree in trees]))
    yield Numbers("covers", [active], np.concatenate([tree.cover for tree in trees]))


def _columns(
    party: str,
    values: NDArray[np.float32],
    table: LookupTable,
    training: NDArray[np.float32],
    max_bin: int,
) -> list[Secret]:
    cuts = Cuts.of(training, max_bin)
    codes = BinMatrix.of(values, cuts).codes
    return [
        Texts(f"names of {party}", [party], table.feature_names),
        Numbers(f"values of {party}", [party], values.ravel(order="C")),
        Numbers(f"values of {party}", [party], values.ravel(order="F")),
        Numbers(f"cuts of {party}", [party], np.concatenate([[0.0], *cuts.thresholds])),
        Numbers(f"thresholds of {party}", [party], table.threshold),
        Codes(f"bins of {party}", [party], codes.ravel(order="F")),
        Codes(f"bins of {party}", [party], codes.ravel(order="C")),
    ]


def _growth(
    share: ActiveShare,
    tables: Sequence[LookupTable],
    columns: Sequence[NDArray[np.float32]],
    label: NDArray[np.float32],
    evaluation: NDArray[np.bool_],
    hides_rows: bool,
) -> Iterator[Secret]:
    """Gradients, sums and row sets of every node, grown again from the finished shares."""
    active = share.parties[0]
    base = objective_of(share.params).first_margin(share.base_score)
    grown = Round(np.full((len(label), *np.shape(base)), base, np.float32), share.params)
    for number, tree in enumerate(share.trees):
        held = Gradients.of(grown.margin, label, ~evaluation, share.params, number)
        carried = held.pairs[held.carried]
        increments = np.zeros((len(label), *tree.weight.shape[1:]), np.float32)
        for name, column in (("g", carried[:, 0::2].ravel()), ("h", carried[:, 1::2].ravel())):
            bits = held.scale.g_bits if name == "g" else held.scale.h_bits
            yield Numbers(name, [active], column)
            yield Numbers(name, [active], np.ldexp(column.astype(np.float64), -bits))
        yield Numbers("pairs of g and h", [active], held.scale.to_float(carried).ravel())
        standing = {0: np.arange(len(label))}
        levels = {0: 0}
        for node in range(len(tree)):
            rows, owner = standing[node], int(tree.owner[node])
            sums = held.totals(rows)
            yield Numbers("sums of a node", [active], sums)
            yield Numbers("sums of a node", [active], held.scale.to_float(sums))
            yield Bits("labels of a node", [active], rows, label[rows] > 0)
            if hides_rows and node:
                standing_there = np.isin(np.arange(len(label)), rows)
                yield Bits("the rows of a node", [active], np.arange(len(label)), standing_there)
                learned = np.flatnonzero(~evaluation)
                yield Bits("the rows of a node", [active], learned, standing_there[learned])
            if owner == LEAF:
                increments[rows] = tree.weight[node]
                continue
            left = tables[owner].directions(
                columns[owner], rows, np.full(len(rows), tree.record[node])
            )
            below = int(tree.left[node]), int(tree.right[node])
            standing |= dict(zip(below, (rows[left], rows[~left]), strict=True))
            levels |= dict.fromkeys(below, levels[node] + 1)
            if hides_rows:
                yield Bits("a partition", [active], rows, left)
            if levels[node] + 1 == share.params.max_depth:
                readers = {active, share.parties[owner]}
                yield Bits("a partition of the last level", readers, rows, left)
        grown.add(increments)

"""How does a long list keep its blinding, so that later alignments blind the short list alone?

The owner of the long list keeps one key k, and the other party keeps the points k·H(x). Later the
other party sends s·H(y) under a fresh s, gets k·s·H(y) back and takes s off: k·H(y) is compared
with what it keeps. As long as k stays, values of two alignments can be linked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import DataError
from fedmq.privacy.set_intersection import Common, IdList, Points, intersect

__all__ = [
    "TAG_BYTES",
    "Blinding",
    "KeptBlinding",
    "blinding_of",
    "intersect_kept",
    "inverse_key",
    "require_distinct",
]

TAG_BYTES = 16

_ORDER = 2**252 + 27742317777372353535851937790883648493
"""Of the subgroup in which all points lie that are sent (RFC 7748, section 4.1)."""
_CLAMPED = 2**254


def inverse_key(key: bytes) -> bytes:
    """The key (32 bytes) that takes ``key`` off a point: X25519 by both leaves the point as it was.

    X25519 makes a key a multiple of 8 between 2^254 and 2^255. Of the inverse there is one such
    number t below 8 times the order, and -t gives the same u-coordinate: one of both is in range,
    but for one key of 2^125.
    """
    scalar = int.from_bytes(key, "little") & (2**255 - 8) | _CLAMPED
    inverse = 8 * pow(8 * scalar, -1, _ORDER)
    inverse = inverse if inverse >= _CLAMPED else 8 * _ORDER - inverse
    return inverse.to_bytes(32, "little")


@dataclass(frozen=True, slots=True, eq=False)
class KeptBlinding:
    """What the owner of the long list keeps: ``name``, ``key``, and whom the list holds.

    ``tags`` uint8 (ids, 16): each id's hash under the key, in the order of the list, which is that
    in which they were blinded. ``made``: seconds since 1970.
    """

    name: str
    key: bytes
    made: float
    tags: NDArray[np.uint8]

    def holds(self, name: str) -> bool:
        """Whether the list has held the id ``name`` since the key was made."""
        return bool((self.tags == _tags(self.key, [name.encode()])).all(axis=1).any())


@dataclass(frozen=True, slots=True, eq=False)
class Blinding:
    """How a list is blinded in this alignment: ``kept`` points are with the other party already.

    ``order`` uint32 (ids,): which id stands at each place of the list; ``fresh``: those that the
    other party lacks, from place ``kept`` on.
    """

    name: str
    key: bytes
    kept: int
    order: NDArray[np.uint32]
    fresh: IdList


def blinding_of(
    ids: IdList, earlier: KeptBlinding | None, anew: KeptBlinding, held: str, held_points: int
) -> tuple[KeptBlinding, Blinding]:
    """What to keep from now on, and how to blind ``ids``; the other party holds ``held``.

    New ids are added to the ``earlier`` list. If one of its ids is gone, it begins ``anew``: the
    other party must not find somebody whom this party does not hold.
    """
    encoded = ids.encoded()
    if earlier is not None:
        tags = _tags(earlier.key, encoded)
        order = _places(earlier.tags, tags)
        if order is not None:
            added = np.ones(len(tags), np.bool_)
            added[order] = False
            # By their hashes: the order of this party's table shows nowhere.
            [more] = np.nonzero(added)
            more = more[np.argsort(_values(tags[more]), kind="stable")]
            places = np.concatenate([order, more]).astype(np.uint32)
            kept = replace(earlier, tags=tags[places])
            known = held_points if held == kept.name and held_points <= len(earlier.tags) else 0
            fresh = IdList.of(encoded[place].decode() for place in places[known:].tolist())
            return kept, Blinding(kept.name, kept.key, known, places, fresh)
    tags = _tags(anew.key, encoded)
    places = np.argsort(_values(tags), kind="stable").astype(np.uint32)
    kept = replace(anew, tags=tags[places])
    fresh = IdList.of(encoded[place].decode() for place in places.tolist())
    return kept, Blinding(kept.name, kept.key, 0, places, fresh)


def _tags(key: bytes, encoded: Sequence[bytes]) -> NDArray[np.uint8]:
    digests = b"".join(
        [hashlib.blake2b(text, digest_size=TAG_BYTES, key=key).digest() for text in encoded]
    )
    return np.frombuffer(digests, np.uint8).reshape(-1, TAG_BYTES)


def _places(wanted: NDArray[np.uint8], among: NDArray[np.uint8]) -> NDArray[np.intp] | None:
    """Where each of ``wanted`` stands ``among`` tags; None if one of them is gone."""
    values, sought = _values(among), _values(wanted)
    if not len(values):
        return None
    order = np.argsort(values, kind="stable")
    at = np.minimum(np.searchsorted(values[order], sought), len(values) - 1)
    places = order[at]
    return places if (values[places] == sought).all() else None


def _values(rows: NDArray[np.uint8]) -> NDArray[np.bytes_]:
    rows = np.ascontiguousarray(rows)
    return rows.view(f"S{rows.shape[1]}").reshape(-1)


def intersect_kept(
    own: Sequence[Points], kept: Points, required: Sequence[int] | None = None
) -> Common:
    """`intersect` of ``own`` pieces and the long ``kept`` list, which is not sorted for it.

    Both are under the owner's key alone. Points of the long list that begin like none of the own
    are left out first.
    """
    points = np.concatenate(own)
    beginnings = np.sort(_beginnings(points))
    long = _beginnings(kept)
    at = np.minimum(np.searchsorted(beginnings, long), len(beginnings) - 1)
    [alike] = np.nonzero(beginnings[at] == long)
    common = intersect([[points], [np.asarray(kept[alike])]], required)
    mine, theirs = common.places
    found = theirs < len(alike)
    places = theirs.copy()
    places[found] = alike[theirs[found]]
    return replace(common, places=(mine, places))


def _beginnings(points: Points) -> NDArray[np.uint64]:
    beginnings: NDArray[np.uint64] = np.ascontiguousarray(points[:, :8]).view("<u8").reshape(-1)
    return beginnings


def require_distinct(points: Points) -> None:
    """Raise DataError if a list holds one point twice, which no honest party sends."""
    values = np.sort(_values(points))
    if (values[1:] == values[:-1]).any():
        raise DataError("a list of blinded ids holds one of them twice")

"""Private set intersection by commuting Diffie-Hellman keys on Curve25519.

Every party multiplies every id, hashed to a curve point, by a key of its own: F(id) = k1·k2·…·H(id)
is the same whichever party held the id, and shows nothing of it while one key is secret (Meadows
1986; Huberman, Franklin and Hogg 1999; semi-honest, under decisional Diffie-Hellman).

Points travel as X25519's u-coordinates (RFC 7748). Its scalars are multiples of 8, so what is sent
lies in the subgroup of prime order, where u-coordinates commute. Half of all field elements are
u-coordinates of the curve, the others of its twist, and a multiple stays on the same one. A hash
taken as u unchecked would thus show one bit of itself under every key. H therefore tries hashes
until one is on the curve. The time that takes depends on the id; only the party itself can see it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import gmpy2
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from numpy.typing import NDArray

from fedmq.computation import computation
from fedmq.errors import DataError
from fedmq.privacy import curve_multiples

__all__ = [
    "LACKED",
    "POINT_BYTES",
    "Common",
    "IdList",
    "Points",
    "Sorted",
    "blind",
    "blind_ids",
    "hash_to_curve",
    "intersect",
    "sort_points",
]

POINT_BYTES = 32
LACKED = 2**32 - 1
"""In place of a person's place in a list: the list lacks this person. No list is so long."""

Points = NDArray[np.uint8]
"""u-coordinates, little-endian: uint8 (points, 32)."""

_PRIME = gmpy2.mpz(2**255 - 19)
_A = 486662
_U_BITS = (1 << 255) - 1
_WORTH_TRANSLATING = 2000
"""Points for which eight at once are sooner done; the code for it is translated in 0.4 s."""
_DOMAIN = b"fedmq set intersection v1"


@dataclass(frozen=True, slots=True, eq=False)
class IdList:
    """Ids concatenated as UTF-8, so that a million ids cross processes as two arrays.

    ``text`` uint8 (bytes,); ``stops`` int64 (ids,): where each id ends.
    """

    text: NDArray[np.uint8]
    stops: NDArray[np.int64]

    @classmethod
    def of(cls, ids: Iterable[str]) -> IdList:
        """The list of ``ids``, in their order."""
        encoded = [text.encode() for text in ids]
        stops = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        return cls(np.frombuffer(b"".join(encoded), np.uint8), stops)

    def __len__(self) -> int:
        return len(self.stops)

    def part(self, start: int, stop: int) -> IdList:
        """The ids from ``start`` up to, not including, ``stop``."""
        first = int(self.stops[start - 1]) if start else 0
        stops = self.stops[start:stop]
        last = int(stops[-1]) if len(stops) else first
        return IdList(self.text[first:last], stops - first)

    def encoded(self) -> list[bytes]:
        """Each id's UTF-8."""
        text = self.text.tobytes()
        starts = [0, *self.stops[:-1].tolist()]
        return [text[a:b] for a, b in zip(starts, self.stops.tolist(), strict=False)]

    def strings(self) -> list[str]:
        """Each id as text."""
        return [text.decode() for text in self.encoded()]


def hash_to_curve(name: bytes) -> bytes:
    """The u-coordinate of a curve point for ``name``: SHA-256, tried with a counter until it fits.

    u belongs to the curve v² = u³ + 486662 u² + u, and not to its twist, if the right side is a
    square (RFC 7748, section 4.1).
    """
    inner = hashlib.sha256(_DOMAIN + hashlib.sha256(name).digest())
    counter = 0
    while True:
        outer = inner.copy()
        outer.update(counter.to_bytes(2, "little"))
        u = gmpy2.mpz(int.from_bytes(outer.digest(), "little") & _U_BITS)
        if u < _PRIME and gmpy2.jacobi(u * (u * (u + _A) + 1) % _PRIME, _PRIME) == 1:
            return int(u).to_bytes(POINT_BYTES, "little")
        counter += 1


def _multiplied(key: bytes, points: Points) -> Points:
    at_once = len(points) >= _WORTH_TRANSLATING and curve_multiples.is_available()
    products = (curve_multiples.multiples if at_once else _one_by_one)(key, points)
    if not products.any(axis=1).all():
        raise DataError("a point of small order is among the blinded ids")
    return products


def _one_by_one(key: bytes, points: Points) -> Points:
    """By the package ``cryptography``; a point of small order becomes zero."""
    private, data = X25519PrivateKey.from_private_bytes(key), points.tobytes()
    products = np.zeros((len(points), POINT_BYTES), np.uint8)
    for place in range(len(points)):
        at = place * POINT_BYTES
        point = X25519PublicKey.from_public_bytes(data[at : at + POINT_BYTES])
        # It refuses a product of zero by an error.
        with suppress(ValueError):
            products[place] = np.frombuffer(private.exchange(point), np.uint8)
    return products


@computation("BlindIds")
def blind_ids(key: bytes, ids: IdList) -> Points:
    """A piece of a party's own ids, hashed and multiplied by its ``key`` (32 bytes)."""
    points = b"".join([hash_to_curve(text) for text in ids.encoded()])
    return _multiplied(key, np.frombuffer(points, np.uint8).reshape(-1, POINT_BYTES))


@computation("Blind")
def blind(key: bytes, points: Points) -> Points:
    """A piece of another party's blinded ids, multiplied by this party's ``key`` (32 bytes).

    Raises:
        DataError: a point of small order, which no honest party sends.
    """
    return _multiplied(key, points)


@dataclass(frozen=True, slots=True, eq=False)
class Sorted:
    """A list by ascending value; ``origin`` uint32 (points,): where each point stood before."""

    points: Points
    origin: NDArray[np.uint32]


@computation("SortPoints")
def sort_points(pieces: Sequence[Points]) -> Sorted:
    """The points of all ``pieces`` by ascending value.

    Under a fresh key values are as good as random, so that their order is a shuffle: a party that
    knows the list only under fewer keys cannot match the points.
    """
    points = np.concatenate(pieces)
    origin = np.argsort(_values(points), kind="stable")
    return Sorted(points[origin], origin.astype(np.uint32))


@dataclass(frozen=True, slots=True, eq=False)
class Common:
    """Rows of the first list by ascending value; ``places[i]`` uint32: where in list i.

    ``held``: how many of these rows each list holds; elsewhere its place is ``LACKED``. ``shared``
    int (lists,): how many rows of the whole first list each list holds; ``by_all``: all lists.
    """

    places: tuple[NDArray[np.uint32], ...]
    held: tuple[int, ...]
    shared: tuple[int, ...]
    by_all: int

    @property
    def count(self) -> int:
        """How many rows they are."""
        return len(self.places[0])


@computation("Intersect")
def intersect(lists: Sequence[Sequence[Points]], required: Sequence[int] | None = None) -> Common:
    """Find the rows that all ``lists`` share; each list comes in pieces under all parties' keys.

    With ``required``: the rows of the first list that the lists of these numbers hold, too.

    Raises:
        DataError: a list holds one point twice, which no honest party sends.
    """
    values = [_values(np.concatenate(pieces)) for pieces in lists]
    orders = [np.argsort(points, kind="stable") for points in values]
    ascending = [points[order] for points, order in zip(values, orders, strict=True)]
    if any((points[1:] == points[:-1]).any() for points in ascending):
        raise DataError("a list of blinded ids holds one of them twice")
    first = ascending[0]
    held = np.stack([np.isin(first, points, assume_unique=True) for points in ascending])
    wanted = range(len(lists)) if required is None else required
    taken = held[list(wanted)].all(axis=0)
    common, there = first[taken], held[:, taken]
    return Common(
        tuple(
            _places(points, order, common, found)
            for points, order, found in zip(ascending, orders, there, strict=True)
        ),
        tuple(there.sum(axis=1).tolist()),
        tuple(held.sum(axis=1).tolist()),
        int(held.all(axis=0).sum()),
    )


def _places(
    ascending: NDArray[np.bytes_],
    order: NDArray[np.intp],
    wanted: NDArray[np.bytes_],
    there: NDArray[np.bool_],
) -> NDArray[np.uint32]:
    places = np.full(len(wanted), LACKED, np.uint32)
    places[there] = order[np.searchsorted(ascending, wanted[there])]
    return places


def _values(points: Points) -> NDArray[np.bytes_]:
    # NumPy pads byte strings with zeros when comparing; all have the same length.
    return np.ascontiguousarray(points).view(f"S{POINT_BYTES}").reshape(-1)

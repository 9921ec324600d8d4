"""How do two parties come to share what depends on a bit of one and a number of the other?

Correlated transfers (Asharov, Lindell, Schneider and Zohner, CCS 2013): for each choice the parties
come to share the choice times a number. Numbers are integers modulo 2^128, as two words each, the
lower one first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.oblivious_transfer.extension import Permutation, Tweaks, hashed

__all__ = [
    "WIDE_BITS",
    "Offered",
    "Wide",
    "add",
    "bits_at",
    "bits_of",
    "factor_choices",
    "integers_of",
    "joined_products",
    "multiply",
    "negate",
    "offer",
    "offer_narrow",
    "offered_factors",
    "receive",
    "receive_narrow",
    "shift_up",
    "subtract",
    "sum_of",
    "turned_offer",
    "turned_offer_narrow",
    "turned_receipt",
    "turned_receipt_narrow",
    "wide",
]

WIDE_BITS = 128

Wide = NDArray[np.uint64]
"""(..., 2)."""

_WORD = 64
_HALF = np.uint64(32)
_LOW_HALF = np.uint64(2**32 - 1)


def wide(numbers: NDArray[np.int64] | NDArray[np.uint64]) -> Wide:
    """``numbers`` widened to two words; signed ones by sign extension."""
    above = numbers >> 63 if numbers.dtype == np.int64 else np.zeros_like(numbers)
    return np.stack([numbers.view(np.uint64), above.view(np.uint64)], axis=-1)


def add(left: Wide, right: Wide) -> Wide:
    """The sum."""
    low = left[..., 0] + right[..., 0]
    carried = low < left[..., 0]
    return np.stack([low, left[..., 1] + right[..., 1] + carried], axis=-1)


def negate(numbers: Wide) -> Wide:
    """Zero less each number."""
    low = ~numbers[..., 0] + np.uint64(1)
    return np.stack([low, ~numbers[..., 1] + (low == 0)], axis=-1)


def subtract(left: Wide, right: Wide) -> Wide:
    """The difference."""
    low = left[..., 0] - right[..., 0]
    borrowed = left[..., 0] < right[..., 0]
    return np.stack([low, left[..., 1] - right[..., 1] - borrowed], axis=-1)


def shift_up(numbers: Wide, bits: int) -> Wide:
    """Times two to the power of ``bits``."""
    if bits >= WIDE_BITS:
        return np.zeros_like(numbers)
    low, high = numbers[..., 0], numbers[..., 1]
    if bits >= _WORD:
        return np.stack([np.zeros_like(low), low << np.uint64(bits - _WORD)], axis=-1)
    if bits:
        high = high << np.uint64(bits) | low >> np.uint64(_WORD - bits)
        low = low << np.uint64(bits)
    return np.stack([low, high], axis=-1)


def multiply(left: Wide, right: Wide) -> Wide:
    """The product, by schoolbook multiplication in halves of words."""
    x, y = left[..., 0], right[..., 0]
    x_low, x_high, y_low, y_high = x & _LOW_HALF, x >> _HALF, y & _LOW_HALF, y >> _HALF
    middle = x_high * y_low + (x_low * y_low >> _HALF)
    other = x_low * y_high + (middle & _LOW_HALF)
    high = x_high * y_high + (middle >> _HALF) + (other >> _HALF)
    return np.stack([x * y, high + left[..., 1] * y + x * right[..., 1]], axis=-1)


def sum_of(numbers: Wide) -> Wide:
    """The sum along the first axis."""
    halves = np.stack([numbers & _LOW_HALF, numbers >> _HALF], axis=-1).sum(axis=0)
    low, high = halves[..., 0, :], halves[..., 1, :]  # each below 2^64 for 2^32 numbers
    return add(
        add(wide(low[..., 0]), shift_up(wide(low[..., 1]), 32)),
        shift_up(add(wide(high[..., 0]), shift_up(wide(high[..., 1]), 32)), 64),
    )


def bits_of(numbers: Wide, count: int) -> NDArray[np.bool_]:
    """The lowest ``count`` bits, the lowest first: bool (count, ...)."""
    words = np.ascontiguousarray(numbers, "<u8")
    unpacked = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little", count=count)
    return np.ascontiguousarray(np.moveaxis(unpacked, -1, 0)).astype(np.bool_)


def bits_at(numbers: Wide, place: int, count: int) -> NDArray[np.uint64]:
    """The ``count`` bits, at most 64, from ``place`` on, zeros below bit 0: uint64 (...)."""
    low, high = numbers[..., 0], numbers[..., 1]
    if place <= 0:
        found = low << np.uint64(-place) if place > -_WORD else np.zeros_like(low)
    elif place < _WORD:
        found = low >> np.uint64(place) | high << np.uint64(_WORD - place)
    else:
        found = high >> np.uint64(place - _WORD)
    return found & np.uint64((1 << count) - 1)


def integers_of(bits: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The integers of fewer than 64 ``bits`` (count, ...), the lowest first: int64 (...)."""
    powers = np.int64(1) << np.arange(len(bits))
    return np.tensordot(powers, bits.astype(np.int64), axes=1)


# How do two parties come to share what depends on a bit of one and a number of the other?
#
# Correlated transfers (Asharov, Lindell, Schneider and Zohner, CCS 2013): for each choice the
# parties get random numbers modulo 2^128 whose sum is the sender's number where the choice is 1,
# and else 0. A product is a sum of correlated transfers: one for each bit of one factor, of the
# other factor times that bit's place (Gilboa, CRYPTO 1999, section 4.1).


def offer(
    rows: NDArray[np.uint64],
    secret: NDArray[np.uint64],
    numbers: Wide,
    permutation: Permutation,
    tweaks: Tweaks,
) -> tuple[Wide, Wide]:
    """The sender's shares and its message: both (n, k, 2).

    ``rows`` (n, 2) and ``secret`` as `ExtensionSender` has them; ``numbers`` (n, k, 2).
    """
    count, width, _ = numbers.shape
    places = tweaks.spend(count)
    unchosen = hashed(permutation, rows, places, width)
    chosen = hashed(permutation, rows ^ secret, places, width)
    return negate(unchosen), subtract(add(unchosen, numbers), chosen)


def receive(
    rows: NDArray[np.uint64],
    choices: NDArray[np.bool_],
    sent: object,
    width: int,
    permutation: Permutation,
    tweaks: Tweaks,
) -> Wide:
    """The receiver's shares: (n, k, 2), where k is ``width``.

    Raises:
        MessageError: ``sent`` has another shape.
    """
    shape = (len(rows), width, 2)
    if not isinstance(sent, np.ndarray) or sent.dtype != np.uint64 or sent.shape != shape:
        raise MessageError(f"numbers of correlated transfers that are not uint64 {shape}")
    shares = hashed(permutation, rows, tweaks.spend(len(rows)), width)
    shares[choices] = add(shares[choices], sent[choices])
    return shares


# Numbers may leave before the receiver knows its choice: for a random one r. Shares of r times a
# number become those of the choice by a bit, ``turned``, whether they differ: (1 - r) times the
# number is the number less r times it (Beaver, CRYPTO 1995).


def turned_offer(own: Wide, numbers: Wide, turned: NDArray[np.bool_]) -> Wide:
    """The sender's shares (n, k, 2) of what it offered for random choices; ``turned`` (n,)."""
    return np.where(turned[:, np.newaxis, np.newaxis], subtract(numbers, own), own)


def turned_receipt(shares: Wide, turned: NDArray[np.bool_]) -> Wide:
    """The receiver's shares (n, k, 2), of those of random choices."""
    return np.where(turned[:, np.newaxis, np.newaxis], negate(shares), shares)


def factor_choices(factors: Wide, bits: int) -> NDArray[np.bool_]:
    """The choices that stand for ``factors`` (n, 2) below 2^bits: bool (bits * n,)."""
    return bits_of(factors, bits).reshape(-1)


def offered_factors(factors: Wide, bits: int) -> Wide:
    """The numbers of ``factors`` (n, k, 2) for each of the other party's bits: (bits * n, k, 2)."""
    shifted = np.stack([shift_up(factors, bit) for bit in range(bits)])
    return shifted.reshape(-1, *factors.shape[1:])


def joined_products(shares: Wide, bits: int) -> Wide:
    """Shares of the products (n, k, 2), from ``shares`` (bits * n, k, 2) of their parts."""
    return sum_of(shares.reshape(bits, -1, *shares.shape[1:]))


# How are numbers of less than 64 bits transferred? Two of each hash, and only the bytes they have.


@dataclass(frozen=True, slots=True, eq=False)
class Offered:
    """Numbers modulo 2^``bits`` of ``transfers`` transfers, for those that choose among them.

    ``parts`` makes them anew whenever they are read, uint64 (some of the transfers, width) at a
    time: all numbers of many transfers together would take most of a worker's memory.
    """

    transfers: int
    bits: int
    parts: Callable[[], Iterator[NDArray[np.uint64]]]


def offer_narrow(
    rows: NDArray[np.uint64],
    secret: NDArray[np.uint64],
    numbers: NDArray[np.uint64],
    bits: int,
    permutation: Permutation,
    tweaks: Tweaks,
) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """The sender's shares modulo 2^bits, (n, k), and its message, uint8 (n, k, bytes).

    As `offer`, of ``numbers`` uint64 (n, k).
    """
    count, width = numbers.shape
    places = tweaks.spend(count)
    modulus = np.uint64((1 << bits) - 1)
    size = -(-bits // 8)
    own, sent = np.empty((count, width), np.uint64), np.empty((count, width, size), np.uint8)
    for part in _parts(count, width):
        unchosen = _narrow_pads(permutation, rows[part], places[part], width)
        chosen = _narrow_pads(permutation, rows[part] ^ secret, places[part], width)
        own[part] = (np.uint64(0) - unchosen) & modulus
        message = np.ascontiguousarray(unchosen + numbers[part] - chosen & modulus, "<u8")
        sent[part] = message.view(np.uint8).reshape(-1, width, 8)[..., :size]
    return own, sent


def receive_narrow(
    rows: NDArray[np.uint64],
    choices: NDArray[np.bool_],
    sent: NDArray[np.uint8],
    bits: int,
    permutation: Permutation,
    tweaks: Tweaks,
) -> NDArray[np.uint64]:
    """The receiver's shares modulo 2^bits: uint64 (n, k) of a message (n, k, bytes)."""
    count, width, size = sent.shape
    places = tweaks.spend(count)
    modulus = np.uint64((1 << bits) - 1)
    shares = np.empty((count, width), np.uint64)
    for part in _parts(count, width):
        padded = np.zeros((*sent[part].shape[:2], 8), np.uint8)
        padded[..., :size] = sent[part]
        numbers = np.where(choices[part, np.newaxis], padded.view("<u8")[..., 0], np.uint64(0))
        pads = _narrow_pads(permutation, rows[part], places[part], width)
        shares[part] = pads + numbers & modulus
    return shares


def turned_offer_narrow(
    own: NDArray[np.uint64], numbers: NDArray[np.uint64], turned: NDArray[np.bool_], bits: int
) -> NDArray[np.uint64]:
    """As `turned_offer`, modulo 2^bits: (n, k)."""
    modulus = np.uint64((1 << bits) - 1)
    return np.where(turned[:, np.newaxis], numbers - own & modulus, own)


def turned_receipt_narrow(
    shares: NDArray[np.uint64], turned: NDArray[np.bool_], bits: int
) -> NDArray[np.uint64]:
    """As `turned_receipt`, modulo 2^bits: (n, k)."""
    modulus = np.uint64((1 << bits) - 1)
    return np.where(turned[:, np.newaxis], np.uint64(0) - shares & modulus, shares)


_NUMBERS_AT_ONCE = 2**16  # what they take lies in a cache


def _parts(count: int, width: int) -> Iterator[slice]:
    """Parts of ``count`` transfers of ``width`` numbers each."""
    at_once = max(1, _NUMBERS_AT_ONCE // max(1, width))
    for start in range(0, count, at_once):
        yield slice(start, start + at_once)


def _narrow_pads(
    permutation: Permutation, rows: NDArray[np.uint64], places: NDArray[np.uint64], width: int
) -> NDArray[np.uint64]:
    hashes = hashed(permutation, rows, places, -(-width // 2))
    return hashes.reshape(len(rows), -1)[:, :width]

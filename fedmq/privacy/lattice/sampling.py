"""Which random numbers does a lattice need? Ternary secrets, small errors, public elements."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.lattice.layout import ERROR_BITS, LIMB_BITS, LIMBS
from fedmq.privacy.random_stream import Stream

__all__ = ["draw_errors", "draw_secret", "draw_ternary", "public_element"]


def draw_ternary(stream: Stream, *shape: int) -> NDArray[np.int8]:
    """-1, 0 and 1, each with chance 1/3 but for 2^-64."""
    return (stream.words(*shape) % np.uint64(3)).astype(np.int8) - np.int8(1)


def draw_errors(stream: Stream, *shape: int) -> NDArray[np.int64]:
    """Centred binomial numbers: the ones among 21 bits less those among 21 others."""
    words = stream.words(*shape)
    low = np.uint64((1 << ERROR_BITS) - 1)
    errors: NDArray[np.int64] = np.bitwise_count(words & low).astype(np.int64)
    errors -= np.bitwise_count((words >> np.uint64(ERROR_BITS)) & low)
    return errors


def draw_secret(seed: bytes, degree: int, largest: int) -> NDArray[np.int8]:
    """A ternary ring element of which at most ``largest`` coefficients are other than 0."""
    stream = Stream(seed, "fedmq lattice secret")
    while True:
        secret = draw_ternary(stream, degree)
        if np.count_nonzero(secret) <= largest:
            return secret


def public_element(seed: bytes, number: int, degree: int) -> NDArray[np.int32]:
    """The uniform ring element a_number that both sides make of the public ``seed``.

    Its limbs (6, degree), read as signed, which changes the element by nothing modulo 2^192 once
    they are carried.
    """
    limbs = Stream(seed, f"fedmq lattice a {number}").read(LIMB_BITS // 8 * LIMBS * degree)
    return np.frombuffer(limbs, "<i4").reshape(LIMBS, degree)

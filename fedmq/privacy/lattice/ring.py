"""How are elements of Z[X]/(X^N + 1) multiplied, drawn, and agreed upon?

By a complex Fourier transform of half the length, the "right-angle convolution": the coefficients
``(a_k + i·a_{k+N/2})·exp(iπk/N)``. One factor is a limb of 32 bits, the other ternary: float64 then
keeps every coefficient within 1/2 of the integer (Percival, Math. Comp. 72, 2003: for N = 8192 and
any ternary factor the error is at most 0.27). How close they are is measured in every product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import Inexact
from fedmq.privacy.lattice.parameters import ERROR_BITS, LIMB_BITS, LIMBS, Layout
from fedmq.privacy.random_stream import Stream

__all__ = [
    "MASK_ELEMENT",
    "PublicElements",
    "Transform",
    "TransformPublic",
    "check_distance",
    "coefficients",
    "draw_errors",
    "draw_secret",
    "draw_ternary",
    "errors_in",
    "public_element",
    "reversed_element",
    "shares_of",
    "transformed",
    "untwist",
]

Transform = NDArray[np.complex128]
_Number = TypeVar("_Number", bound=np.number[Any])

_FARTHEST = 0.25  # from an integer


@lru_cache
def _twist(degree: int) -> Transform:
    twist: Transform = np.exp(1j * np.pi * np.arange(degree // 2) / degree)
    return twist


@lru_cache
def untwist(degree: int) -> Transform:
    """What turns coefficients back: complex128 (degree / 2,)."""
    return np.conj(_twist(degree))


def transformed(elements: NDArray[np.number]) -> Transform:
    """Elements (..., N) in the frequency domain, where products are taken: (..., N/2)."""
    half = elements.shape[-1] // 2
    folded = np.empty((*elements.shape[:-1], half), np.complex128)
    folded.real = elements[..., :half]
    folded.imag = elements[..., half:]
    folded *= _twist(2 * half)
    return np.fft.fft(folded, axis=-1)


def coefficients(transforms: Transform) -> NDArray[np.int64]:
    """Back from the frequency domain (..., N/2), rounded to integers (..., N).

    Raises:
        Inexact: the coefficients are not within 1/4 of integers.
    """
    half = transforms.shape[-1]
    folded = np.fft.ifft(transforms, axis=-1)
    folded *= untwist(2 * half)
    parts = folded.view(np.float64)
    rounded = np.rint(parts)
    parts -= rounded
    check_distance(np.abs(parts, out=parts).max(initial=0.0))
    whole = np.empty((*transforms.shape[:-1], 2 * half), np.int64)
    whole[..., :half] = rounded[..., 0::2]
    whole[..., half:] = rounded[..., 1::2]
    return whole


def check_distance(farthest: float) -> None:
    """Raise `Inexact` if a coefficient that is so far from an integer may be another one."""
    if not farthest < _FARTHEST:
        raise Inexact(f"a product of ring elements is {farthest:.3g} off; report this machine")


def reversed_element(elements: NDArray[_Number]) -> NDArray[_Number]:
    """Elements s (..., N) such that the constant coefficient of h·s is the inner product with h."""
    turned = np.empty_like(elements)
    turned[..., 0] = elements[..., 0]
    turned[..., 1:] = -elements[..., :0:-1]
    return turned


def draw_ternary(stream: Stream, *shape: int) -> NDArray[np.int8]:
    """-1, 0 and 1, each with chance 1/3 but for 2^-64."""
    return (stream.words(*shape) % np.uint64(3)).astype(np.int8) - np.int8(1)


def draw_errors(stream: Stream, *shape: int) -> NDArray[np.int64]:
    """Centred binomial numbers: the ones among 21 bits less those among 21 others."""
    return errors_in(stream.words(*shape))


def errors_in(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The error that each of ``words`` holds."""
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

    Its limbs (6, degree) are read as signed; once carried, the element is the same modulo 2^192.
    """
    limbs = Stream(seed, f"fedmq lattice a {number}").read(LIMB_BITS // 8 * LIMBS * degree)
    return np.frombuffer(limbs, "<i4").reshape(LIMBS, degree)


# Which ring elements do both sides share? One for each block of rows, and one for masks.


MASK_ELEMENT = 2**32
"""The number of a', with which hints are masked; blocks have smaller numbers."""


@dataclass(frozen=True, eq=False)
class PublicElements:
    """In the frequency domain: ``every`` one, (blocks + 1, 6, N/2), that of masks last."""

    every: Transform

    @classmethod
    def joined(cls, parts: Sequence[Transform]) -> PublicElements:
        """Join the results of the computations of `shares_of`."""
        return cls(np.concatenate(parts))

    @property
    def blocks(self) -> Transform:
        """The elements of the rows: (blocks, 6, N/2)."""
        return self.every[:-1]

    @property
    def mask(self) -> Transform:
        """The element of masks: (6, N/2)."""
        mask: Transform = self.every[-1]
        return mask


@dataclass(frozen=True, eq=False)
class TransformPublic:
    """The elements of these numbers in the frequency domain: complex128 (numbers, 6, N/2)."""

    label: ClassVar[str] = "TransformPublic"
    seed: bytes
    numbers: Sequence[int]
    degree: int

    def run(self) -> Transform:
        transforms = np.empty((len(self.numbers), LIMBS, self.degree // 2), np.complex128)
        for place, number in enumerate(self.numbers):
            transforms[place] = transformed(public_element(self.seed, number, self.degree))
        return transforms


def shares_of(seed: bytes, layout: Layout, parallelism: int) -> list[TransformPublic]:
    """The computations of all elements that ``layout`` needs, split up."""
    numbers = [*range(layout.blocks), MASK_ELEMENT]
    size = -(-len(numbers) // parallelism)
    return [
        TransformPublic(seed, tuple(numbers[start : start + size]), layout.degree)
        for start in range(0, len(numbers), size)
    ]

"""How are elements of Z[X]/(X^N + 1) multiplied?

By a complex Fourier transform of half the length, the "right-angle convolution": the coefficients
``(a_k + i·a_{k+N/2})·exp(iπk/N)``. One factor is a limb of 32 bits, the other ternary: float64 then
keeps every coefficient within 1/2 of the integer (Percival, Math. Comp. 72, 2003: for N = 8192 and
any ternary factor the error is at most 0.27). How close they are is measured in every product.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import Inexact

__all__ = ["Transform", "coefficients", "reversed_element", "transformed"]

Transform = NDArray[np.complex128]

_FARTHEST = 0.25  # from an integer


@lru_cache
def _twist(degree: int) -> Transform:
    twist: Transform = np.exp(1j * np.pi * np.arange(degree // 2) / degree)
    return twist


@lru_cache
def _untwist(degree: int) -> Transform:
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
    folded *= _untwist(2 * half)
    parts = folded.view(np.float64)
    rounded = np.rint(parts)
    parts -= rounded
    farthest = np.abs(parts, out=parts).max(initial=0.0)
    if not farthest < _FARTHEST:
        raise Inexact(f"a product of ring elements is {farthest:.3g} off; report this machine")
    whole = np.empty((*transforms.shape[:-1], 2 * half), np.int64)
    whole[..., :half] = rounded[..., 0::2]
    whole[..., half:] = rounded[..., 1::2]
    return whole


def reversed_element(elements: NDArray[np.int8]) -> NDArray[np.int8]:
    """Elements s (..., N) such that the constant coefficient of h·s is the inner product with h."""
    turned = np.empty_like(elements)
    turned[..., 0] = elements[..., 0]
    turned[..., 1:] = -elements[..., :0:-1]
    return turned

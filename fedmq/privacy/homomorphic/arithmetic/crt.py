"""Residues modulo two coprime numbers, as the owner of a key computes with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from gmpy2 import invert, mpz

__all__ = ["Crt"]


@dataclass(frozen=True)
class Crt:
    """The Chinese remainder theorem for two coprime moduli, which are secret here."""

    first: mpz = field(repr=False)
    second: mpz = field(repr=False)

    def join(self, residue: mpz, other: mpz) -> mpz:
        """The number in [0, first·second) that is ``residue`` mod first and ``other`` mod second.

        Garner's formula; both residues are taken as reduced.
        """
        first, second = self.first, self.second
        return residue + first * ((other - residue) * _inverse(first, second) % second)


@lru_cache(maxsize=8)
def _inverse(first: mpz, second: mpz) -> mpz:
    return invert(first, second)

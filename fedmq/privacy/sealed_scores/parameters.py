"""How large are ring, modulus and plaintexts, so that the ring is hard and products are exact?"""

from __future__ import annotations

__all__ = [
    "BLOCKS",
    "BLOCK_SLOTS",
    "DEGREE",
    "FACTOR_BITS",
    "GENERATOR",
    "LIMBS",
    "LIMB_BITS",
    "MODULUS_BITS",
    "PRIME",
    "SENT_BITS",
]

DEGREE = 4096
"""N: coefficients of an element, and slots of a plaintext."""

LIMB_BITS = 27
LIMBS = 4
MODULUS_BITS = LIMB_BITS * LIMBS

PRIME = 1_073_692_673
"""t: the largest prime below 2^30 that is 1 modulo 2 N, so that plaintexts have N slots."""

GENERATOR = 3
"""Its powers are all numbers modulo t but 0."""

FACTOR_BITS = 15
"""Of each half of a plaintext that is a factor."""

BLOCKS = 64
BLOCK_SLOTS = DEGREE // BLOCKS
"""The sums of 64 blocks of 64 slots each are all that 64 coefficients of a plaintext tell."""

SENT_BITS = 80
"""Answers travel modulo 2^80: their 28 lowest bits are rounded away."""

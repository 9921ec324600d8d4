"""How many bits of security has the engine `lattice`, and how much noise covers its answers?

::

    python -m benchmarks.lattice_security

The bits are those of the primal attack: a lattice reduction (BKZ) finds the secret as an unusually
short vector. Success condition: Alkim, Ducas, Poeppelmann and Schwabe (USENIX Security 2016), with
the secret scaled as Bai and Galbraith (ACISP 2014) do. Cost of a block of size b in dimension d:
0.292 b + log2(8 d) + 16.4 bits (Becker, Ducas, Gama, Laarhoven, SODA 2016), which is how the tables
of the HomomorphicEncryption.org standard (2018) were made. Their rows for 128 bits come first: the
estimate agrees with them within a bit or two, so that the row in use can be read beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import e, log2, pi, sqrt

import numpy as np

from fedmq.privacy.lattice.parameters import (
    DEGREE,
    ERROR_BITS,
    FLOOD_UNIFORMS,
    LIMB_BITS,
    LIMBS,
    MOST_ROWS,
    Layout,
)

__all__ = ["Attack", "cheapest_attack", "flood_information"]

_ERROR_DEVIATION = sqrt(ERROR_BITS / 2)
_TERNARY_DEVIATION = sqrt(2 / 3)
_SMALLEST_BLOCK = 60  # below it the formula of the root Hermite factor does not hold


@dataclass(frozen=True)
class Attack:
    """A block size, the dimension that it is used in, and its cost in bits."""

    block: int
    dimension: int

    @property
    def bits(self) -> float:
        return 0.292 * self.block + log2(8 * self.dimension) + 16.4

    @property
    def quantum_bits(self) -> float:
        """With a quantum computer, and nothing but the exponent counted."""
        return 0.265 * self.block


def cheapest_attack(
    degree: int, modulus_bits: int, error_deviation: float = _ERROR_DEVIATION
) -> Attack:
    """On a ternary secret of so many coefficients, over all numbers of samples."""
    attacks = []
    scale = log2(error_deviation / _TERNARY_DEVIATION)
    for samples in range(degree // 4, 2 * degree + 1, max(1, degree // 64)):
        dimension = samples + degree + 1
        volume_bits = samples * modulus_bits + degree * scale
        low, high = _SMALLEST_BLOCK, dimension
        if not _succeeds(high, dimension, volume_bits, error_deviation):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            if _succeeds(middle, dimension, volume_bits, error_deviation):
                high = middle
            else:
                low = middle
        attacks.append(Attack(high, dimension))
    return min(attacks, key=lambda attack: attack.bits)


def _succeeds(block: int, dimension: int, volume_bits: float, error_deviation: float) -> bool:
    hermite = log2((pi * block) ** (1 / block) * block / (2 * pi * e)) / (2 * (block - 1))
    shortest = log2(block) / 2 + log2(error_deviation)
    return shortest <= (2 * block - dimension - 1) * hermite + volume_bits / dimension


def flood_information(points: int = 1 << 11) -> float:
    """Fisher information times variance of the noise over an answer; 1 for a Gaussian."""
    uniform = np.ones(points) / points
    density = uniform
    for _ in range(FLOOD_UNIFORMS - 1):
        density = np.convolve(density, uniform)
    places = np.arange(len(density))
    variance = (density * (places - (density * places).sum()) ** 2).sum()
    slopes, heights = np.diff(density), (density[1:] + density[:-1]) / 2
    return float((slopes**2 / heights).sum() * variance)


def main() -> None:
    in_use = LIMBS * LIMB_BITS
    for degree, modulus_bits, name in (
        (2048, 54, "the standard's row for 128 bits"),
        (4096, 109, "the standard's row for 128 bits"),
        (8192, 218, "the standard's row for 128 bits"),
        (DEGREE, in_use, "in use"),
    ):
        deviation = _ERROR_DEVIATION if modulus_bits == in_use else 3.2
        attack = cheapest_attack(degree, modulus_bits, deviation)
        print(
            f"N = {degree}, log q = {modulus_bits}: {attack.bits:.0f} bits, "
            f"{attack.quantum_bits:.0f} against quantum computers "
            f"(block size {attack.block} in dimension {attack.dimension}); {name}"
        )
    print(f"noise over an answer: Fisher information x variance = {flood_information():.3f}")
    for rows in (30_000, 150_000, 1_000_000):
        layout = Layout(rows)
        used = layout.largest_noise / 2 ** (layout.noise_bits - 1)
        answers = log2(layout.most_answers)
        print(
            f"{rows:,} rows: fields of {layout.field_bits} bits above {layout.noise_bits} of "
            f"noise, {used:.0%} used at worst; 2^{answers:.0f} answers in a session; "
            f"{layout.hint_bytes:,} bytes of a hint"
        )
    for rows in (1_000, 30_000, 1_000_000, MOST_ROWS):
        layout = Layout(rows, hidden=True)
        doubt = log2(layout.largest_error) + 1 - layout.noise_bits
        print(
            f"{rows:,} rows, hidden sums: uniform noise of {layout.noise_bits} bits; 2^{doubt:.1f} "
            f"of sums in doubt at worst; {layout.hint_bytes:,} bytes of a hint"
        )


if __name__ == "__main__":
    main()

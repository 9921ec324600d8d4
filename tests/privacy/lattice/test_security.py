"""The parameters in use are as hard as promised, by an estimate that agrees with the standard's."""

from __future__ import annotations

import pytest

from benchmarks.lattice_security import cheapest_attack, flood_information
from fedmq.privacy.lattice import parameters


@pytest.mark.parametrize(("degree", "modulus_bits"), [(4096, 109), (8192, 218)])
def test_the_estimate_agrees_with_the_standard(degree: int, modulus_bits: int) -> None:
    assert cheapest_attack(degree, modulus_bits, 3.2).bits == pytest.approx(128, abs=2)


def test_the_parameters_in_use_are_harder() -> None:
    attack = cheapest_attack(parameters.DEGREE, parameters.LIMBS * parameters.LIMB_BITS)
    assert attack.bits >= 145
    assert attack.quantum_bits >= 100


def test_the_information_in_shifted_noise() -> None:
    assert flood_information() == pytest.approx(parameters._FLOOD_INFORMATION, abs=0.005)

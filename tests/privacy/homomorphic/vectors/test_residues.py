from __future__ import annotations

import ctypes
import secrets
from collections.abc import Iterator

import numpy as np
import pytest
from gmpy2 import invert, is_prime, mpz, powmod

from fedmq.errors import DataError, MessageError
from fedmq.machine_code import translated
from fedmq.privacy.homomorphic import residues as module
from fedmq.privacy.homomorphic.instructions import PRODUCTS, Multiply, is_available
from fedmq.privacy.homomorphic.residues import Residues, to_wire

MODULI = [mpz(2) ** bits - less for bits, less in ((61, 1), (192, 237), (521, 1), (2048, 1942289))]


@pytest.fixture(params=["instructions", "one by one"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With the processor's instructions, and as a worker without them computes."""
    if request.param == "one by one":
        monkeypatch.setattr(module, "is_available", lambda: False)
    elif not is_available():
        pytest.skip("this processor has neither AVX-512 IFMA nor FMA")
    yield request.param


def drawn(modulus: mpz, count: int) -> list[mpz]:
    numbers = [mpz(secrets.randbelow(int(modulus) - 1) + 1) for _ in range(count)]
    return [mpz(1), modulus - 1, *numbers][:count]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("modulus", MODULI)
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 40])
def test_products_are_those_of_numbers(modulus: mpz, count: int) -> None:
    residues = Residues(modulus)
    left, right = drawn(modulus, count), drawn(modulus, count)[::-1]
    products = residues.product(residues.from_numbers(left), residues.from_numbers(right))
    expected = [a * b % modulus for a, b in zip(left, right, strict=True)]
    assert residues.to_numbers(products) == expected
    np.testing.assert_array_equal(residues.to_bytes(products), to_wire(expected, modulus))


@pytest.mark.usefixtures("way")
def test_bytes_of_the_wire_come_back_as_they_were() -> None:
    residues = Residues(MODULI[-1])
    wire = to_wire(drawn(MODULI[-1], 20), MODULI[-1])
    np.testing.assert_array_equal(residues.to_bytes(residues.from_bytes(wire)), wire)


@pytest.mark.usefixtures("way")
def test_zero_is_written_as_zero_on_every_machine() -> None:
    modulus = MODULI[0] * MODULI[2]
    residues, factors = Residues(modulus), ([mpz(3), MODULI[0]], [mpz(5), MODULI[2]])
    left, right = map(residues.from_numbers, factors)
    wire = residues.to_bytes(residues.product(left, right))
    np.testing.assert_array_equal(wire, to_wire([mpz(15), mpz(0)], modulus))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("count", [1, 8, 11])
def test_many_squarings_are_a_power(count: int) -> None:
    modulus = MODULI[2]
    residues, numbers = Residues(modulus), drawn(modulus, count)
    rows = residues.from_numbers(numbers)
    residues.square(rows, 300)
    assert residues.to_numbers(rows) == [powmod(x, mpz(1) << 300, modulus) for x in numbers]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("count", [1, 9, 70])
@pytest.mark.parametrize("exponent", [1, 2, 3, 6, 2**64 + 1, 2**224 // 3])
def test_powers_are_those_of_numbers(exponent: int, count: int) -> None:
    modulus = MODULI[2] ** 2
    residues, numbers = Residues(modulus), [*drawn(modulus, count), MODULI[2]]
    found = residues.to_numbers(residues.power(residues.from_numbers(numbers), mpz(exponent)))
    assert found == [powmod(x, exponent, modulus) for x in numbers]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13, 27, 100])
def test_inverses_are_those_of_numbers(count: int) -> None:
    modulus = MODULI[2]
    assert is_prime(modulus)
    residues, numbers = Residues(modulus), drawn(modulus, count)
    found = residues.to_numbers(residues.inverses(residues.from_numbers(numbers)))
    assert found == [invert(x, modulus) for x in numbers]


def test_a_number_without_inverse_is_refused() -> None:
    modulus = MODULI[2] * 3
    residues = Residues(modulus)
    with pytest.raises(MessageError, match="shares a factor with the key"):
        residues.inverses(residues.from_numbers([mpz(5), mpz(9), mpz(7)]))


@pytest.mark.usefixtures("way")
def test_later_products_read_what_earlier_ones_wrote() -> None:
    modulus = MODULI[1]
    residues, factors = Residues(modulus), drawn(modulus, 5)
    cells, rows = residues.ones(16), residues.from_numbers(factors)
    places = np.tile(np.arange(8), len(factors))
    residues.multiply(cells, places, cells, places, rows, np.repeat(np.arange(len(factors)), 8))
    product = mpz(1)
    for factor in factors:
        product = product * factor % modulus
    assert residues.to_numbers(cells) == [product] * 8 + [mpz(1)] * 8


@pytest.mark.parametrize("beyond", [-1, 8, 2**40])
def test_a_place_beyond_the_rows_is_refused(beyond: int) -> None:
    residues = Residues(MODULI[0])
    rows, places = residues.ones(8), np.arange(8)
    wrong = np.where(places == 3, beyond, places)
    for at in ((wrong, places, places), (places, wrong, places), (places, places, wrong)):
        with pytest.raises(DataError, match="a place beyond 8 rows"):
            residues.multiply(rows, at[0], rows, at[1], rows, at[2])
    with pytest.raises(DataError, match="rows of shape"):
        residues.multiply(rows, places, rows[:, :4], places, rows, places)


def test_numbers_that_are_no_residues_are_refused() -> None:
    residues = Residues(MODULI[0])
    for number in (0, int(MODULI[0])):
        wire = np.frombuffer(number.to_bytes(8, "little"), np.uint8).reshape(1, 8)
        with pytest.raises(MessageError, match="no residue of the key"):
            residues.from_bytes(wire)


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("limbs", [1, 2, 3, 40])
def test_the_code_of_every_processor_is_well_formed(product: type, limbs: int) -> None:
    binding = pytest.importorskip("llvmlite.binding")
    binding.parse_assembly(product(limbs).written()).verify()


@pytest.mark.parametrize("bits", [51, 103, 104, 155, 2046])
def test_products_of_the_largest_limbs_are_exact(bits: int) -> None:
    modulus = mpz(2) ** bits - 1
    residues = Residues(modulus)
    ends = [modulus - 1, modulus - 2, modulus // 2, mpz(2) ** (bits - 1) - 1, mpz(1), mpz(0)]
    left = [x for x in ends for _ in ends]
    right = ends * len(ends)
    wire = [to_wire(numbers, modulus) for numbers in (left, right)]
    rows = [residues.product(residues._limbs(part), residues._square) for part in wire]
    found = residues.to_numbers(residues.product(*rows))
    assert found == [x * y % modulus for x, y in zip(left, right, strict=True)]


EMULATED = """
define <8 x i64> @{name}(<8 x i64> %sum, <8 x i64> %x, <8 x i64> %y) {{
  %wide_x = zext <8 x i64> %x to <8 x i128>
  %wide_y = zext <8 x i64> %y to <8 x i128>
  %cut_x = and <8 x i128> %wide_x, {mask}
  %cut_y = and <8 x i128> %wide_y, {mask}
  %product = mul <8 x i128> %cut_x, %cut_y
  %half = lshr <8 x i128> %product, {shift}
  %cut = and <8 x i128> %half, {mask}
  %narrow = trunc <8 x i128> %cut to <8 x i64>
  %total = add <8 x i64> %sum, %narrow
  ret <8 x i64> %total
}}
"""


def with_emulated_ifma(module: str) -> str:
    """Code for AVX-512 IFMA that any processor can run."""

    def every(number: int) -> str:
        return "<" + ", ".join([f"i128 {number}"] * 8) + ">"

    kept = [line for line in module.splitlines() if not line.startswith("declare")]
    text = "\n".join(kept)
    for half, shift in (("l", 0), ("h", 52)):
        text = text.replace(f'"llvm.x86.avx512.vpmadd52{half}.uq.512"', f"half_{half}")
        name, mask = f"half_{half}", every(2**52 - 1)
        text += EMULATED.format(name=name, mask=mask, shift=every(shift))
    return text


@pytest.mark.skipif(not is_available(), reason="no llvmlite, or no processor that it knows")
@pytest.mark.parametrize("modulus", MODULI[:3])
def test_code_for_ifma_multiplies_where_its_instructions_are_emulated(
    modulus: mpz, monkeypatch: pytest.MonkeyPatch
) -> None:
    def multiply(limbs: int) -> Multiply:
        written = with_emulated_ifma(PRODUCTS[0](limbs).written())
        [address] = translated(written, "multiply")
        return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 7, ctypes.c_uint64, ctypes.c_int64)(
            address
        )

    monkeypatch.setattr(module, "multiplier", multiply)
    residues, left = Residues(modulus), drawn(modulus, 24)
    products = residues.product(residues.from_numbers(left), residues.from_numbers(left[::-1]))
    expected = [a * b % modulus for a, b in zip(left, left[::-1], strict=True)]
    assert residues.to_numbers(products) == expected

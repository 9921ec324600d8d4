"""How does a party correlate its columns with columns that it cannot read?

One ciphertext a row holds several standardised columns in fixed point, side by side in slots. The
product of its powers by the other party's own standardised column decrypts to an inner product in
each slot: a coefficient times the rows. Before it leaves, noise is added to each, drawn evenly from
half a hundredth below to half a hundredth above: of a coefficient no more is told than two digits
tell, log2(201) bits, and its rounding is one of the two hundredths next to it. Bits above the slots
are masked.
"""

from __future__ import annotations

import secrets

import numpy as np
from gmpy2 import mpz, powmod
from numpy.typing import NDArray

from fedmq.computation import computation
from fedmq.errors import MessageError
from fedmq.privacy.homomorphic.group_sums import decrypting, masked_sums
from fedmq.privacy.homomorphic.paillier import PrivateKey, PublicKey
from fedmq.privacy.homomorphic.residues import from_wire, to_wire

__all__ = ["add_products", "decrypt_products", "encrypt_columns", "slots_of"]

# What one side's rounding to fixed point does to a coefficient is below 2^-(bits + 1).
_ENCRYPTED_BITS = 12
_OWN_BITS = 10
_HALF_A_HUNDREDTH = 0.005
_MASK_BITS = 42  # of a key, above the slots


def _slot_bits(rows: int) -> int:
    """Bits of an inner product with its noise, and its sign: Cauchy and Schwarz bound it."""
    return rows.bit_length() + _ENCRYPTED_BITS + _OWN_BITS + 2


def slots_of(public: PublicKey, rows: int) -> int:
    """How many columns of so many ``rows`` one ciphertext holds."""
    return max(1, (int(public.n.bit_length()) - _MASK_BITS) // _slot_bits(rows))


@computation("EncryptColumns")
def encrypt_columns(key: PrivateKey, standard: NDArray[np.float64], rows: int) -> NDArray[np.uint8]:
    """Columns ``standard`` (part, columns) as wire bytes: uint8 (part, blocks, bytes).

    They are a part of so many ``rows`` that are multiplied together.
    """
    columns = standard.shape[1]
    slots, bits = slots_of(key.public, rows), _slot_bits(rows)
    fixed = np.rint(standard * 2**_ENCRYPTED_BITS).astype(np.int64)
    blocks = [
        [
            sum(value << place * bits for place, value in enumerate(row))
            for row in fixed[:, first : first + slots].tolist()
        ]
        for first in range(0, columns, slots)
    ]
    encrypted = [to_wire(key.encrypt(block), key.public.modulus) for block in blocks]
    return np.stack(encrypted, axis=1)


@computation("AddProducts")
def add_products(
    public: PublicKey,
    ciphertexts: NDArray[np.uint8],
    standard: NDArray[np.float64],
    columns: int,
) -> NDArray[np.uint8]:
    """Encrypted inner products with columns ``standard`` (rows, own): uint8 (own, blocks, bytes).

    ``ciphertexts`` uint8 (rows, blocks, bytes) of so many ``columns``: of what is in other slots
    nothing is told.

    Raises:
        MessageError: the ciphertexts are not one per row under this key, or more or fewer blocks
            than the columns take, or the key is too short.
    """
    rows, own = standard.shape
    if len(ciphertexts) != rows:
        raise MessageError("one ciphertext for each row is needed")
    fixed = np.rint(standard * 2**_OWN_BITS).astype(np.int64)
    slots, bits = slots_of(public, rows), _slot_bits(rows)
    firsts = range(0, columns, slots)
    if ciphertexts.shape[1] != len(firsts):
        raise MessageError(f"{ciphertexts.shape[1]} blocks of columns, not {len(firsts)}")
    found = []
    for block, first in enumerate(firsts):
        held = min(slots, columns - first)
        numbers = from_wire(ciphertexts[:, block], public.modulus)
        sums = [_weighted(numbers, fixed[:, column], public.modulus) for column in range(own)]
        noised = public.add_plaintexts(sums, [_noise(rows, held, bits) for _ in sums])
        found.append(to_wire(masked_sums(public, noised, held * bits), public.modulus))
    return np.stack(found, axis=1)


def _weighted(numbers: list[mpz], weights: NDArray[np.int64], modulus: mpz) -> mpz:
    """The product of ``numbers`` to the power of ``weights``, by descending weight.

    Weights count from the least: then each number is multiplied once, and each step from a weight
    to the next below takes one short power.
    """
    least = int(weights.min())
    order = np.argsort(-weights, kind="stable")
    above = (weights - least)[order]
    steps = above - np.append(above[1:], 0)
    product, running = mpz(1), mpz(1)
    for row, step in zip(order.tolist(), steps.tolist(), strict=True):
        running = running * numbers[row] % modulus
        if step:
            product = product * (running if step == 1 else powmod(running, step, modulus)) % modulus
    try:
        return product * powmod(running, least, modulus) % modulus
    except ZeroDivisionError:
        raise MessageError("ciphertexts share a factor with the key") from None


def _noise(rows: int, slots: int, bits: int) -> int:
    """Noise for each slot, on a number that makes all of them positive."""
    most = round(_HALF_A_HUNDREDTH * rows * 2 ** (_ENCRYPTED_BITS + _OWN_BITS))
    each = (secrets.randbelow(2 * most + 1) - most + (1 << bits - 1) for _ in range(slots))
    return sum(value << place * bits for place, value in enumerate(each))


@computation("DecryptProducts")
def decrypt_products(
    key: PrivateKey, sums: NDArray[np.uint8], rows: int, columns: int
) -> NDArray[np.float64]:
    """The coefficients in hundredths, float64 (own, columns), of ``sums`` (own, blocks, bytes).

    Raises:
        MessageError: ciphertexts do not fit the key.
    """
    own, blocks, size = sums.shape
    slots, bits = slots_of(key.public, rows), _slot_bits(rows)
    opened = decrypting(key).decrypt(from_wire(sums.reshape(-1, size), key.public.modulus))
    whole = rows * 2 ** (_ENCRYPTED_BITS + _OWN_BITS)
    found = [
        ((int(masked % key.public.n) >> place * bits) % (1 << bits) - (1 << bits - 1)) / whole
        for masked in opened
        for place in range(slots)
    ]
    coefficients = np.array(found, np.float64).reshape(own, blocks * slots)[:, :columns]
    return np.clip(np.round(coefficients, 2), -1.0, 1.0)

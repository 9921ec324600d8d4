"""Numbers that were made with plain integers, by another program."""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np

from fedmq.privacy.lattice.answer import inner_products
from fedmq.privacy.lattice.hint import JoinHints, cut_hints, indicator_products
from fedmq.privacy.lattice.parameters import Layout, add_shifted, carried, signed_field
from fedmq.privacy.lattice.ring import (
    PublicElements,
    coefficients,
    public_element,
    reversed_element,
    shares_of,
    transformed,
)
from tests.privacy.lattice.computed import PUBLIC_SEED, integers

ROWS, DEGREE = 10_000, 8192
PLACES = np.arange(DEGREE)
SECRET = ((PLACES**2 + PLACES // 7) % 3 - 1).astype(np.int8)
MASK = ((5 * PLACES + PLACES // 11) % 3 - 1).astype(np.int8)
NUMBERS = np.arange(ROWS)
G = 7919 * NUMBERS % 2**41 - 2**40
H = 104729 * NUMBERS % 2**40
LEFT = NUMBERS % 5 < 2
LAYOUT = Layout(ROWS)


def digest(limbs: np.ndarray) -> str:
    return hashlib.sha256(
        b"".join(number.to_bytes(24, "little") for number in integers(limbs))
    ).hexdigest()


@cache
def public() -> PublicElements:
    return PublicElements.joined([share.run() for share in shares_of(PUBLIC_SEED, LAYOUT, 1)])


@cache
def query() -> np.ndarray:
    blocks = []
    for block in range(2):
        held = LAYOUT.rows_of(block)
        sums = coefficients(public().blocks[block] * transformed(SECRET))
        sums = sums[:, : held.stop - held.start]
        add_shifted(sums, H[held], LAYOUT.noise_bits)
        add_shifted(sums, G[held], LAYOUT.g_offset(0))
        blocks.append(carried(sums))
    return np.concatenate(blocks, axis=1)


@cache
def hint() -> np.ndarray:
    products = indicator_products(LEFT.astype(np.intp), 2, public().blocks, LAYOUT)
    return products[1] + coefficients(public().mask * transformed(MASK))


@cache
def answer() -> np.ndarray:
    masked = carried(coefficients(public().mask * transformed(SECRET)))
    turned = reversed_element(MASK)[np.newaxis]
    sums = query()[:, LEFT].astype(np.int64).sum(axis=1)
    return carried((sums + inner_products(turned, masked)[0])[:, np.newaxis])


def test_the_layout() -> None:
    assert (LAYOUT.noise_bits, LAYOUT.field_bits, LAYOUT.cut_bits) == (80, 56, 64)


def test_the_public_elements() -> None:
    first, mask = (public_element(PUBLIC_SEED, number, DEGREE) for number in (0, 2**32))
    assert f"{integers(first)[0]:048x}" == "062e6e990c317abe24c3b2bba3a8b237ffdacde4064995c0"
    assert f"{integers(mask)[0]:048x}" == "32874128ae3aa6a7b7f52d57a53cea2e5d489abcb7f54454"


def test_a_product() -> None:
    product = carried(coefficients(public().blocks[0] * transformed(SECRET)))
    assert digest(product) == "b271076395ce513d9aa385f3ec919dc455ab05c81265b8d40680fc610b44b908"


def test_a_query_without_errors() -> None:
    assert digest(query()) == "9485340d9bd0a1a0e40ffe97beef2b4aea8e69b7f7d5deb7d7516f6afd9294c4"


def test_a_hint_without_errors() -> None:
    assert (
        digest(carried(hint()))
        == "133aa10bbc553e5e6cb512ad98346037224cabd2a7d38cb5f13d2cba8230a556"
    )


def test_a_hint_that_is_cut() -> None:
    units = cut_hints(hint(), LAYOUT)
    limbs = JoinHints([{"hint": units[np.newaxis]}], LAYOUT).run()[0]
    padded = np.concatenate([np.zeros((2, DEGREE), np.uint32), limbs])
    assert digest(padded) == "0f95dbba913e16536a9882afa9bb8ffbae49fc20347d90a6408da55d806857a1"


def test_an_answer_without_noise() -> None:
    assert f"{integers(answer())[0]:048x}" == "98be7afb0650c054d670470705bb761452501b17f7c00df1"


def test_the_sums_that_it_holds() -> None:
    limbs = JoinHints([{"hint": cut_hints(hint(), LAYOUT)[np.newaxis]}], LAYOUT).run()
    products = (limbs[0].astype(np.float64) @ reversed_element(SECRET)).astype(np.int64)
    sums = answer().astype(np.int64)
    sums[2:, 0] -= products
    sums[2, 0] += 2 ** (LAYOUT.noise_bits - 1 - 64)
    read = carried(sums)
    h = int(signed_field(read, LAYOUT.noise_bits, LAYOUT.field_bits)[0])
    g = int(signed_field(read, LAYOUT.g_offset(0), LAYOUT.field_bits)[0])
    assert (g, h) == (-4397888194456000, 2093742168000)
    assert (G[LEFT].sum(), H[LEFT].sum()) == (g, h)

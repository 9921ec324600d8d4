"""Points multiplied eight at once are X25519's, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from fedmq.privacy.curve_multiples import is_available, multiples
from fedmq.privacy.set_intersection import Points, _one_by_one

pytestmark = pytest.mark.skipif(not is_available(), reason="a processor without AVX-512 IFMA")

PRIME = 2**255 - 19


def points_of(numbers: list[int]) -> Points:
    encoded = b"".join(number.to_bytes(32, "little") for number in numbers)
    return np.frombuffer(encoded, np.uint8).reshape(-1, 32)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 300])
def test_points_of_any_number_are_multiplied_as_by_x25519(count: int) -> None:
    draw = np.random.default_rng(count)
    key = draw.bytes(32)
    points = np.frombuffer(draw.bytes(32 * count), np.uint8).reshape(-1, 32)
    private = X25519PrivateKey.from_private_bytes(key)
    expected = [
        private.exchange(X25519PublicKey.from_public_bytes(point.tobytes())) for point in points
    ]
    assert [product.tobytes() for product in multiples(key, points)] == expected


def test_the_example_of_the_standard_holds() -> None:
    # RFC 7748, section 5.2
    key = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    point = "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"
    product = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    points = np.frombuffer(bytes.fromhex(point), np.uint8).reshape(1, 32)
    assert multiples(key, points).tobytes().hex() == product


def test_numbers_at_the_ends_of_the_field_are_multiplied_as_by_x25519() -> None:
    ends = [2, 3, 9, PRIME - 2, PRIME + 2, PRIME + 18, 2**255 - 3, 2**255 + 9, 2**256 - 2]
    ends += [2**power - sign for power in (51, 52, 102, 204, 254) for sign in (0, 1)]
    for key in (bytes(32), b"\xff" * 32, bytes(range(32))):
        assert np.array_equal(multiples(key, points_of(ends)), _one_by_one(key, points_of(ends)))


def test_points_of_small_order_become_zero_either_way() -> None:
    small = points_of([0, 1, PRIME - 1, PRIME, PRIME + 1, 2**255])
    for multiply in (multiples, _one_by_one):
        assert not multiply(b"k" * 32, small).any()

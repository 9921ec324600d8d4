"""Numbers that leave before the choices among them are known become shares of what is chosen."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.privacy.hidden_sums.sides import ReceiverSide, SenderSide, Unpacked, pieces_of
from fedmq.privacy.oblivious_transfer.correlated import Offered, add
from fedmq.privacy.oblivious_transfer.extension import Permutation, Tweaks
from fedmq.privacy.plan import LARGEST_PIECE_BYTES
from tests.privacy.oblivious_transfer.base import extension

PERMUTATION = Permutation(b"public")
COUNT = 400


def sides() -> tuple[ReceiverSide, SenderSide]:
    """Both sides of transfers whose choices are still random."""
    receiver, sender = extension()
    chooses = ReceiverSide(receiver, PERMUTATION, Tweaks())
    sends = SenderSide(sender, PERMUTATION, Tweaks())
    sends.fill(parcel(*chooses.fill(COUNT)), COUNT)
    return chooses, sends


def parcel(*arrays: np.ndarray) -> Unpacked:
    return Unpacked(pieces_of(*arrays))


@pytest.mark.parametrize("bits", [1, 23, 60])
def test_shares_of_short_numbers(bits: int) -> None:
    chooses, sends = sides()
    random, modulus = np.random.default_rng(bits), np.uint64(2**bits - 1)
    numbers = random.integers(0, modulus, (COUNT, 3), np.uint64, endpoint=True)
    choices = random.random(COUNT) < 0.5
    drawn = chooses.draw(COUNT)
    offered = Offered(COUNT, bits, lambda: iter(np.split(numbers, [1, 150])))
    kept, messages = zip(*sends.offer_ahead_narrow(offered), strict=True)
    own = np.concatenate(kept)
    received = chooses.receive_narrow(parcel(*messages), 3, bits)
    np.testing.assert_array_equal(received + own & modulus, where(drawn, numbers))
    turned, shares = chooses.turn_narrow(received, drawn, choices, bits)
    other = np.concatenate(list(sends.turn_narrow(parcel(turned), own, offered)))
    assert max(shares.max(), other.max()) <= modulus
    np.testing.assert_array_equal(shares + other & modulus, where(choices, numbers))


def test_shares_of_long_numbers() -> None:
    chooses, sends = sides()
    random = np.random.default_rng(0)
    numbers = random.integers(0, 2**64, (COUNT, 2, 2), np.uint64)
    choices = random.random(COUNT) < 0.5
    drawn = chooses.draw(COUNT)
    own, message = sends.offer_ahead(numbers)
    received = chooses.receive(parcel(message), 2)
    turned, shares = chooses.turn(received, drawn, choices)
    other = sends.turn(parcel(turned), own, numbers)
    np.testing.assert_array_equal(add(shares, other), where(choices, numbers))


def where(choices: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    chosen = choices.reshape(-1, *[1] * (numbers.ndim - 1))
    return np.where(chosen, numbers, np.uint64(0))


def test_what_is_turned_shows_no_choice() -> None:
    chooses, _ = sides()
    drawn = chooses.draw(COUNT)
    received = np.zeros((COUNT, 1), np.uint64)
    turned, _ = chooses.turn_narrow(received, drawn, np.ones(COUNT, np.bool_), 8)
    assert abs(np.unpackbits(turned).mean() - 0.5) < 0.13


@pytest.mark.parametrize(
    "sizes",
    [
        (),
        (0,),
        (5, 0, 7),
        (LARGEST_PIECE_BYTES,),
        (LARGEST_PIECE_BYTES - 1, 1, 1),
        (3 * LARGEST_PIECE_BYTES + 5, LARGEST_PIECE_BYTES, 9),
    ],
)
def test_arrays_travel_in_pieces_of_any_of_them(sizes: tuple[int, ...]) -> None:
    random = np.random.default_rng(1)
    arrays = [random.integers(0, 256, size, np.uint8) for size in sizes]
    pieces = pieces_of(*arrays)
    cut = [piece["bytes"] for piece in pieces]
    assert len(cut) == len(pieces) >= 1
    assert all(len(part) == LARGEST_PIECE_BYTES for part in cut[:-1])
    assert b"".join(part.tobytes() for part in cut) == b"".join(of.tobytes() for of in arrays)
    assert [piece["bytes"].tobytes() for piece in pieces[1:]] == [of.tobytes() for of in cut[1:]]
    arrived = Unpacked(pieces)
    for array in arrays:
        np.testing.assert_array_equal(arrived.take(np.uint8, array.shape), array)
    arrived.end()

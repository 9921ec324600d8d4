"""An extension gives rows that differ by the secret where 1 was chosen; who cheats is caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedmq.errors import MessageError
from fedmq.privacy.oblivious_transfer.base_transfers import TRANSFERS
from fedmq.privacy.oblivious_transfer.extension import (
    Extended,
    ExtensionSender,
    LinearHash,
    Tweaks,
    draw_choices,
)
from fedmq.privacy.oblivious_transfer.seeds import GROUP_BITS, GROUPS
from tests.privacy.oblivious_transfer.base import CHOICES, base, extension

COUNT = 1001
CHOSEN = np.random.default_rng(0).random(COUNT) < 0.5
DIFFERENT_CHOICES = "other choices in other columns"


def sent(choices: np.ndarray = CHOSEN, start: int = 0) -> tuple[Extended, np.ndarray]:
    return extension()[0].extend(choices, Tweaks(start, start + len(choices)))


def received(message: Extended, count: int = COUNT, start: int = 0) -> np.ndarray:
    return extension()[1].extend(message, count, Tweaks(start, start + count))


def expanded(width: int) -> tuple[np.ndarray, np.ndarray]:
    """The receiver's columns and the totals of its groups."""
    from fedmq.privacy.oblivious_transfer.extension import _columns

    receiver = extension()[0]
    kept, totals = _columns(receiver._seeds, receiver._sums, f"0 {COUNT}", width)
    return np.hstack(kept), totals


def checked(columns: np.ndarray) -> Extended:
    """What a receiver would send that computes its hashes of these columns as if it were honest."""
    honest, _ = sent()
    kept, totals = expanded(columns.shape[1])
    choices = (honest.columns ^ totals)[:1]
    compressed = LinearHash(columns, f"0 {COUNT}")
    return replace(
        honest,
        columns=columns,
        choice_hash=compressed(choices)[0],
        column_hashes=compressed(kept),
    )


@pytest.mark.parametrize("count", [0, 1, 8, 9, 1001, 70_000])
def test_rows_differ_by_the_secret_where_1_was_chosen(count: int) -> None:
    choices = np.random.default_rng(count).random(count) < 0.5
    message, rows = sent(choices)
    other = received(message, count)
    secret = extension()[1].secret
    np.testing.assert_array_equal(rows[~choices], other[~choices])
    np.testing.assert_array_equal(rows[choices], other[choices] ^ secret)
    assert len({row.tobytes() for row in other}) == count


def test_the_lowest_bit_of_the_secret_is_1() -> None:
    for seed in range(20):
        choices = draw_choices(bytes([seed]) * 32)
        assert ExtensionSender(choices, base()[1]).secret[0] & np.uint64(1) == 1
    with pytest.raises(ValueError, match="lowest bit"):
        ExtensionSender(np.zeros(TRANSFERS, np.bool_), base()[1])


def test_what_is_sent_shows_no_choice_to_the_eye() -> None:
    for choices in (np.zeros(80_000, np.bool_), np.ones(80_000, np.bool_)):
        message, _ = sent(choices)
        assert abs(np.unpackbits(message.columns).mean() - 0.5) < 0.001


def test_extensions_of_a_session_have_streams_of_their_own() -> None:
    (one, rows), (two, other_rows) = sent(start=0), sent(start=COUNT)
    assert abs(np.unpackbits(one.columns ^ two.columns).mean() - 0.5) < 0.01
    assert not (rows == other_rows).all(axis=1).any()


def test_tweaks_are_spent() -> None:
    tweaks = Tweaks().take(COUNT)
    extension()[0].extend(CHOSEN, tweaks)
    with pytest.raises(ValueError, match="0 are left"):
        extension()[0].extend(CHOSEN, tweaks)


@pytest.mark.parametrize("group", range(GROUPS))
def test_a_receiver_that_chooses_otherwise_for_a_group_learns_its_bits_or_is_caught(
    group: int,
) -> None:
    """The selective failure that every such check leaves: four bits, at odds of 1 to 15."""
    honest, _ = sent()
    wrong = honest.columns.copy()
    wrong[group, 5] ^= 1
    if CHOICES.reshape(GROUPS, GROUP_BITS)[group].any():
        with pytest.raises(MessageError, match=DIFFERENT_CHOICES):
            received(checked(wrong))
    else:
        received(checked(wrong))
    assert received(checked(honest.columns)).shape == (COUNT, 2)


def test_a_receiver_that_chooses_otherwise_for_many_groups_is_caught() -> None:
    honest, _ = sent()
    wrong = honest.columns.copy()
    wrong[::2, 5] ^= 1
    with pytest.raises(MessageError, match=DIFFERENT_CHOICES):
        received(checked(wrong))


@pytest.mark.parametrize(("place", "side"), [(0, 0), (0, 1), (127, 0), (127, 1)])
def test_sums_that_are_not_those_of_one_tree_are_noticed_if_they_are_read(
    place: int, side: int
) -> None:
    message, _ = sent()
    sums = message.sums.copy()
    sums[place, side, 3] ^= 1
    read = side == int(not CHOICES[place])
    with pytest.raises(MessageError, match="one tree" if read else DIFFERENT_CHOICES):
        received(replace(message, sums=sums))


def test_a_proof_of_another_tree_is_noticed() -> None:
    message, _ = sent()
    for part in (0, 1):
        proof = message.proof.copy()
        proof[5, part, 0] ^= 1
        with pytest.raises(MessageError, match="one tree"):
            received(replace(message, proof=proof))


@pytest.mark.parametrize("name", ["columns", "choice_hash", "column_hashes"])
def test_a_bit_that_is_turned_on_the_way_is_noticed(name: str) -> None:
    message, _ = sent()
    turned = getattr(message, name).copy()
    turned.reshape(-1)[7 * 16 if name == "column_hashes" else 3] ^= 4
    with pytest.raises(MessageError, match=DIFFERENT_CHOICES):
        received(replace(message, **{name: turned}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("columns", None),
        ("columns", np.zeros((GROUPS, 141), np.uint8)),
        ("columns", np.zeros((GROUPS, 142), np.int8)),
        ("choice_hash", np.zeros(15, np.uint8)),
        ("column_hashes", np.zeros((127, 16), np.uint8)),
    ],
    ids=["none", "narrow", "signed", "short", "few"],
)
def test_a_malformed_extension_is_refused(name: str, value: object) -> None:
    message, _ = sent()
    with pytest.raises(MessageError, match="are not uint8"):
        received(replace(message, **{name: value}))


def test_the_hash_is_linear_and_its_key_is_made_of_what_was_sent() -> None:
    random = np.random.default_rng(0)
    columns = random.integers(0, 256, (4, 1000), np.uint8)
    compressed = LinearHash(columns, "one")
    np.testing.assert_array_equal(
        compressed(columns[:2] ^ columns[2:]), compressed(columns[:2]) ^ compressed(columns[2:])
    )
    assert not compressed(np.zeros((1, 1000), np.uint8)).any()
    turned = columns.copy()
    turned[3, 999] ^= 1
    for other in (LinearHash(turned, "one"), LinearHash(columns, "two")):
        assert not np.array_equal(compressed(columns[:1]), other(columns[:1]))


@pytest.mark.parametrize("cuts", [[], [16], [16, 48, 64]])
@pytest.mark.parametrize("width", [100, 20_000], ids=["short", "long"])
def test_columns_that_come_in_parts_have_the_same_hash(width: int, cuts: list[int]) -> None:
    columns = np.random.default_rng(3).integers(0, 256, (TRANSFERS, width), np.uint8)
    whole = LinearHash(columns, "parts")
    hashing = whole.begun(TRANSFERS)
    for part in np.split(columns, cuts, axis=1):
        hashing.add(np.ascontiguousarray(part))
    np.testing.assert_array_equal(hashing.found(), whole(columns))

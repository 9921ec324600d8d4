"""Coefficients of columns of two parties under encryption: right to two digits, and no finer."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from fedmq.boosting.standard_columns import carried_by, standardised
from fedmq.errors import MessageError
from fedmq.messages.screen import MOST_CORRELATED, MOST_ROWS
from fedmq.privacy import column_products
from fedmq.privacy.column_products import (
    DEGREE,
    ColumnLayout,
    Multiplied,
    add_products,
    asked_columns,
    column_seeds,
    decrypt_products,
    encrypt_columns,
    public_seed,
)

ROWS = 150


@dataclass(frozen=True, eq=False)
class Asking:
    """A party with columns ``standard``, and ``rows`` of them, that asks."""

    standard: np.ndarray
    secret: bytes = b"asks" * 8
    encrypted: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        found = encrypt_columns(self.public, self.seeds, self.standard)
        object.__setattr__(self, "encrypted", found)

    @property
    def public(self) -> bytes:
        return public_seed(self.secret)

    @property
    def seeds(self) -> tuple[bytes, ...]:
        return column_seeds(self.secret, self.standard)

    def answer(self, own: np.ndarray, secret: bytes = b"owns" * 8) -> Multiplied:
        asked = asked_columns(self.public, self.encrypted)
        parts = [
            add_products(secret, self.public, asked, self.encrypted, own, slice(first, first + 3))
            for first in range(0, own.shape[1], 3)
        ]
        return Multiplied.joined(parts)

    def read(self, answer: Multiplied) -> np.ndarray:
        return decrypt_products(self.seeds, answer.hints, answer.sums, len(self.standard))

    def whole(self, answer: Multiplied) -> np.ndarray:
        """Coefficients before they are rounded: what a curious party reads."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(np, "round", lambda values, _: values)
            return self.read(answer)


def columns(seed: int, number: int, rows: int = ROWS) -> np.ndarray:
    """Of all kinds: even, skewed by far, marks of few people, some values missing."""
    random = np.random.default_rng(seed)
    base = np.random.default_rng(9).normal(size=rows)
    found = random.normal(size=(rows, number)) + random.normal(size=number) * base[:, np.newaxis]
    found[:, 0] = np.exp(3 * found[:, 0])
    found[:, 1] = found[:, 1] > 2
    found[random.random(rows) < 0.3, 2] = np.nan
    return found


def imputed(values: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(values), np.nanmean(values, axis=0), values)


@pytest.mark.parametrize("rows", [ROWS, DEGREE, 2 * DEGREE + 1])
def test_coefficients_are_those_of_the_joined_table_to_a_hundredth(rows: int) -> None:
    theirs, own = columns(1, 5, rows), columns(2, 4, rows)
    asking = Asking(standardised(theirs))
    assert asking.encrypted.shape == (5, rows + DEGREE, 3)
    found = asking.read(asking.answer(standardised(own)))
    both = np.corrcoef(np.hstack([imputed(own), imputed(theirs)]), rowvar=False)
    np.testing.assert_allclose(found, both[:4, 4:], atol=0.0106)
    np.testing.assert_array_equal(found, np.round(found, 2))


def test_noise_of_a_hundredth_is_all_that_is_below_two_digits() -> None:
    """Decrypted whole, owners' answers to one question spread evenly over a hundredth."""
    asking, own = Asking(standardised(columns(1, 3))), standardised(columns(2, 3))
    exact = float((asking.standard[:, 0] * own[:, 0]).mean())
    many = np.repeat(own[:, :1], 200, axis=1)  # the same column again has noise of its own
    off = asking.whole(asking.answer(many))[:, 0] - exact
    assert np.abs(off).max() < 0.0057
    assert off.min() < -0.0045 and off.max() > 0.0045 and abs(off.mean()) < 0.001


# What is asked again


def test_the_same_question_gets_the_same_answer_and_another_owner_or_column_another() -> None:
    own = standardised(columns(2, 3))
    first, again = (Asking(standardised(columns(1, 3))) for _ in range(2))
    np.testing.assert_array_equal(first.encrypted, again.encrypted)
    one, other = first.answer(own), again.answer(own)
    np.testing.assert_array_equal(one.sums, other.sums)
    np.testing.assert_array_equal(one.hints, other.hints)
    elsewhere = first.answer(own, b"else" * 8)
    assert (elsewhere.sums != one.sums).any(axis=2).all()
    assert (elsewhere.hints != one.hints).any(axis=(1, 2)).all()
    # Of a column that has changed at one person the noise is new: the difference tells nothing.
    changed = own.copy()
    changed[0] += 1e-2
    moved = first.whole(first.answer(changed)) - first.whole(one)
    assert np.abs(moved - (changed - own).T @ first.standard / ROWS).min() > 1e-5


def test_a_column_among_others_keeps_its_noise_and_hints_are_new() -> None:
    """Whoever adds a column and asks anew averages nothing out."""
    own, standard = standardised(columns(2, 3)), standardised(columns(1, 5))
    few, more = Asking(standard[:, :4]), Asking(standard[:, ::-1])
    one, other = few.answer(own), more.answer(own)
    gaps = few.whole(one) - more.whole(other)[:, ::-1][:, :4]
    assert 0 < np.abs(gaps).max() < 1e-5  # far below the noise
    assert (one.hints != other.hints).any(axis=(1, 2)).all()


def test_columns_that_are_the_same_do_not_look_the_same() -> None:
    asking = Asking(np.repeat(standardised(columns(1, 3))[:, :1], 3, axis=1))
    assert len(set(asking.seeds)) == len({part.tobytes() for part in asking.encrypted}) == 3


# What a party sees that it is not to read


def test_ciphertexts_hints_and_answers_look_random() -> None:
    asking = Asking(standardised(columns(1, 3)))
    answer = asking.answer(standardised(columns(2, 6)))
    for words in (asking.encrypted, answer.hints, answer.sums[..., 1:2]):
        bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8))
        assert abs(bits.mean() - 0.5) < 4 / np.sqrt(len(bits))


def test_bounds_hold_for_any_number_of_rows() -> None:
    for rows in (*range(1, 300), 4096, 65_535, 65_536, MOST_ROWS):
        layout = ColumnLayout(rows)
        assert layout.products.distance * MOST_CORRELATED**2 < 2.0**-40
        assert layout.whole < 2 ** (96 - 2) and layout.half_noise > 2**84
    with pytest.raises(AssertionError):
        _ = ColumnLayout(2**21).products


def test_errors_are_those_of_the_bound() -> None:
    """Without its noise an answer is off by the errors alone, and by what drowns them."""
    asking, own = Asking(standardised(columns(1, 3))), standardised(columns(2, 3))
    layout = ColumnLayout(ROWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_products, "_even", lambda *_: 0)
        exact = np.rint(own * 2**10).T @ np.rint(asking.standard * 2**12) / ROWS / 2**22
        off = np.abs(asking.whole(asking.answer(own)) - exact) * layout.whole
        assert off.max() < layout.flood // 2 + layout.products.largest_error
        assert off.max() > layout.flood // 64


def test_a_liar_that_encrypts_one_large_number_reads_one_person_s_value() -> None:
    """What docs/explanation/screening.md says: a value for each column that is sent."""
    own = standardised(columns(2, 3))
    lie = np.zeros((ROWS, 1))
    lie[7] = ROWS / 8
    asking = Asking(lie)
    found = asking.read(asking.answer(own))
    np.testing.assert_allclose(8 * found[:, 0], own[7], atol=8 * 0.0106)


def test_a_number_for_each_row_is_needed() -> None:
    asking = Asking(np.ones((3, 1)))
    with pytest.raises(MessageError, match="a number for each row"):
        asking.answer(np.ones((4, 1)))


def test_people_who_carry_a_column() -> None:
    mark = np.zeros((10_000, 2))
    mark[:30, 0] = 1
    mark[0, 1] = 1e9
    found = carried_by(standardised(mark))
    assert found[0] == 30
    assert found[1] == pytest.approx(1, rel=0.02)
    assert carried_by(standardised(np.full((9, 1), 0.1))) == [0]
    assert carried_by(standardised(np.arange(20).reshape(20, 1) < 7)) == [7]

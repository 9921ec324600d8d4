"""No number is used twice."""

from __future__ import annotations

import pytest

from fedmq.privacy.oblivious_transfer.extension import Tweaks


def test_each_number_is_handed_out_once() -> None:
    session = Tweaks()
    parts = [session.take(count) for count in (3, 0, 5, 1)]
    numbers = [number for part in parts for number in part.spend(part.left).tolist()]
    assert numbers == list(range(9))
    assert session.left == 2**64 - 9


def test_what_was_used_cannot_be_used_again() -> None:
    tweaks = Tweaks().take(4)
    tweaks.spend(4)
    with pytest.raises(ValueError, match="1 tweaks are needed where 0 are left"):
        tweaks.spend(1)
    with pytest.raises(ValueError, match="1 tweaks are needed where 0 are left"):
        tweaks.take(1)


def test_a_use_takes_all_of_its_numbers() -> None:
    with pytest.raises(ValueError, match="3 of 4 tweaks are used"):
        Tweaks().take(4).spend(3)


def test_numbers_go_up_to_the_largest_of_a_word() -> None:
    last = Tweaks(2**64 - 2)
    assert last.spend(2).tolist() == [2**64 - 2, 2**64 - 1]

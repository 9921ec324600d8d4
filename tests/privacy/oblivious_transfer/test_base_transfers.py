"""The first transfers give what was chosen, and nothing else."""

from __future__ import annotations

import gmpy2
import numpy as np
import pytest

from fedmq.errors import MessageError
from fedmq.privacy.oblivious_transfer import base_transfers
from fedmq.privacy.oblivious_transfer.base_transfers import (
    ELEMENT_BYTES,
    TRANSFERS,
    ChooseSeeds,
    OfferedSeeds,
    check_elements,
)
from tests.privacy.oblivious_transfer.base import CHOICES, RECEIVER, SENDER, base


def test_the_group_is_of_prime_order_and_its_generator_of_that_order() -> None:
    modulus = base_transfers._MODULUS
    order = (modulus - 1) // 2
    assert modulus.bit_length() == 2048
    assert gmpy2.is_prime(modulus)
    assert gmpy2.is_prime(order)
    assert gmpy2.powmod(base_transfers._GENERATOR, order, modulus) == 1


def test_the_receiver_has_the_seed_of_its_choice_and_not_the_other() -> None:
    _, seeds, offered = base()
    for place, choice_made in enumerate(CHOICES.tolist()):
        assert np.array_equal(seeds[place], offered[place, int(choice_made)])
        assert not np.array_equal(seeds[place], offered[place, int(not choice_made)])
    assert len({seed.tobytes() for seed in offered.reshape(-1, 32)}) == 2 * TRANSFERS


def test_what_the_receiver_sends_does_not_depend_on_its_choice_to_the_eye() -> None:
    elements = check_elements(base()[0], TRANSFERS)
    assert len({element.tobytes() for element in elements}) == TRANSFERS


@pytest.mark.parametrize(
    "elements",
    [
        None,
        np.zeros((2, ELEMENT_BYTES), np.uint8),
        np.full((2, ELEMENT_BYTES), 255, np.uint8),
        np.ones((1, ELEMENT_BYTES), np.uint8),
        np.ones((2, ELEMENT_BYTES - 1), np.uint8),
        np.ones((2, ELEMENT_BYTES), np.uint16),
    ],
    ids=["none", "zero", "large", "few", "short", "wide"],
)
def test_an_offer_that_is_not_of_the_group_is_refused(elements: object) -> None:
    with pytest.raises(MessageError, match="transfers"):
        ChooseSeeds(elements, CHOICES, RECEIVER).run()  # type: ignore[arg-type]


def test_an_element_that_is_no_square_is_refused() -> None:
    chosen = base()[0].copy()
    modulus = base_transfers._MODULUS
    chosen[5] = np.frombuffer((modulus - 4).to_bytes(ELEMENT_BYTES, "little"), np.uint8)
    with pytest.raises(MessageError, match="not of the group"):
        OfferedSeeds(chosen, SENDER).run()

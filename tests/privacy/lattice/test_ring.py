"""Products of ring elements are the schoolbook's, or an error."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.errors import Inexact
from fedmq.privacy.lattice.parameters import carried
from fedmq.privacy.lattice.ring import (
    coefficients,
    draw_ternary,
    public_element,
    reversed_element,
    transformed,
)
from fedmq.privacy.random_stream import Stream
from tests.privacy.lattice.computed import integers, negacyclic

SEED = b"s" * 32


@pytest.mark.parametrize("degree", [16, 64])
def test_products_are_the_schoolbooks(degree: int) -> None:
    element = public_element(SEED, 3, degree)
    ternary = draw_ternary(Stream(SEED, "factor"), degree)
    product = coefficients(transformed(element) * transformed(ternary))
    wanted = negacyclic(integers(element), ternary.tolist())
    assert integers(carried(product)) == wanted


def test_the_constant_coefficient_is_an_inner_product() -> None:
    element = public_element(SEED, 0, 64)
    ternary = draw_ternary(Stream(SEED, "factor"), 64)
    [constant, *_] = negacyclic(integers(element), ternary.tolist())
    turned = reversed_element(ternary).astype(np.int64)
    assert integers((element.astype(np.int64) @ turned)[:, np.newaxis]) == [constant]


def test_a_product_that_is_not_whole_is_an_error() -> None:
    with pytest.raises(Inexact, match=r"0\.4 off"):
        coefficients(transformed(np.full(16, 0.4)))


def test_a_product_that_is_not_a_number_is_an_error() -> None:
    with pytest.raises(Inexact):
        coefficients(transformed(np.full(16, np.nan)))


def test_the_worst_factors_of_the_full_degree_stay_exact() -> None:
    element = np.full((1, 8192), 2**31 - 1)
    product = coefficients(transformed(element) * transformed(np.ones(8192)))
    # Of (1 + X + ...)²: coefficient k is k + 1 products less the others, N - k - 1.
    wanted = (2 * np.arange(8192) + 2 - 8192) * (2**31 - 1)
    np.testing.assert_array_equal(product[0], wanted)

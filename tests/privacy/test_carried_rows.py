from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting.gradients import FixedPoint, Gradients
from fedmq.boosting.params import TrainParams
from fedmq.privacy.cleartext_sums import carried_row_pieces
from fedmq.privacy.plan import PIECE_BYTES


def gradients(carried: np.ndarray) -> Gradients:
    pairs = np.zeros((len(carried), 2), dtype=np.int64)
    return Gradients(0, pairs, carried, FixedPoint(0, 0, 0), TrainParams())


@pytest.mark.parametrize("rows", [1, 13_500, 13_501, 100_000])
@pytest.mark.parametrize("bytes_per_row", [4, 20])
def test_pieces_hold_every_carried_row_once_and_fit_a_message(
    rows: int, bytes_per_row: int
) -> None:
    carried = np.arange(rows) % 3 != 1
    pieces = carried_row_pieces(gradients(carried), bytes_per_row)
    np.testing.assert_array_equal(np.concatenate(pieces), np.flatnonzero(carried))
    assert all(len(piece) * bytes_per_row <= PIECE_BYTES for piece in pieces)
    assert all(piece.dtype == np.uint32 for piece in pieces)


def test_without_any_row_there_is_one_empty_piece() -> None:
    [piece] = carried_row_pieces(gradients(np.zeros(5, dtype=np.bool_)), 20)
    assert not len(piece)

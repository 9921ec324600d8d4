from __future__ import annotations

import numpy as np
import pytest

from fedmq.privacy.lattice.directions import ChooseRows, HideDirections
from fedmq.privacy.oblivious_transfer import extension, machine_columns, seeds

pytest.importorskip("llvmlite")


@pytest.mark.parametrize("width", [0, 1, 9, 257])
def test_machine_code_and_numpy_turn_the_same_columns(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = np.random.default_rng(width).integers(0, 256, (128, width + 3), dtype=np.uint8)
    monkeypatch.setattr(extension, "is_translated", lambda: False)
    held = columns[:, :width]  # not in one piece
    np.testing.assert_array_equal(machine_columns.rows_of(held), extension.transposed(held))


@pytest.mark.parametrize("words", [1, 13])
def test_machine_code_and_numpy_sum_the_same_streams(words: int) -> None:
    random = np.random.default_rng(words)
    streams = random.integers(0, 2**64, (seeds.GROUPS, 16, words), dtype=np.uint64)
    for found, expected in zip(
        machine_columns.sum_streams(streams), seeds._summed(streams.copy()), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_directions_are_hidden_alike_with_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    known = random.integers(0, 256, (32, 16, 16), dtype=np.uint8)
    left, secret = random.random(5000) < 0.5, random.random(128) < 0.5
    shown = []
    for is_worth in (False, True):
        monkeypatch.setattr(seeds, "is_worth", lambda _, worth=is_worth: worth)
        monkeypatch.setattr(extension, "is_translated", lambda worth=is_worth: worth)
        choice = ChooseRows(len(left), "1 1", b"public", np.flatnonzero(~left), known)
        pieces, pads = choice.run()
        hidden = HideDirections(pieces, "1 1", b"public", left, known, secret).run()
        shown.append([pieces[0]["choice"], pads, hidden])
    for one, other in zip(*shown, strict=True):
        np.testing.assert_array_equal(one, other)


def test_few_rows_are_not_worth_a_translation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_columns, "is_translated", lambda: False)
    assert not machine_columns.is_worth(machine_columns.FEWEST_BYTES - 1)
    assert machine_columns.is_worth(machine_columns.FEWEST_BYTES)

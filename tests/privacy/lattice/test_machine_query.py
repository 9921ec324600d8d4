from __future__ import annotations

import numpy as np
import pytest

from fedmq.errors import Inexact
from fedmq.privacy.lattice import machine_query, query
from fedmq.privacy.lattice.parameters import Layout
from fedmq.privacy.lattice.query import EncryptNode
from fedmq.privacy.lattice.ring import PublicElements, shares_of

pytest.importorskip("llvmlite")

SEED = bytes(32)
LAYOUTS = {
    "one node": Layout(700, 256),
    "several nodes": Layout(700, 256, value_bits=12),
    "hidden sums": Layout(700, 256, hidden=True),
    "half a limb dropped": Layout(700, 256, value_bits=30),
    "no row is left over": Layout(512, 256),
}


def encrypted(layout: Layout, *, people: bool) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(1)
    public = PublicElements.joined([part.run() for part in shares_of(SEED, layout, 1)])
    rows = np.arange(layout.rows + 40 * people, dtype=np.int32)
    most = 1 << layout.value_bits
    pairs = random.integers(-most + 1, most, (len(rows), 2))
    node = random.integers(0, layout.nodes + 1, len(rows))  # some stand in no node of the query
    held = [rows[node == number] for number in range(layout.nodes)]
    of_people = np.sort(random.integers(0, layout.rows, len(rows)).astype(np.int32))
    step = EncryptNode(pairs, held, public, layout, SEED, people=of_people if people else None)
    return step.run()


def test_the_layouts_are_of_all_kinds() -> None:
    assert max(layout.nodes for layout in LAYOUTS.values()) > 1
    assert any(layout.dropped_bits for layout in LAYOUTS.values())
    assert any(layout.sends_half for layout in LAYOUTS.values())


@pytest.mark.parametrize("people", [False, True], ids=["rows", "people"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_machine_code_and_numpy_encrypt_the_same_numbers(
    layout: Layout, people: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not machine_query.can_encrypt(layout)  # too few blocks
    of_numpy = encrypted(layout, people=people)
    monkeypatch.setattr(query, "can_encrypt", lambda _: True)
    at_once = encrypted(layout, people=people)
    assert len(at_once) == len(of_numpy)
    for one, other in zip(at_once, of_numpy, strict=True):
        assert one.keys() == other.keys()
        for name, values in other.items():
            np.testing.assert_array_equal(one[name], values)


@pytest.mark.parametrize("row", [-1, 3])
def test_a_row_that_is_not_in_the_table_touches_no_memory(row: int) -> None:
    layout = Layout(3, 256)
    with pytest.raises(IndexError, match="not in the table"):
        machine_query.spread_pairs(
            np.zeros((2, 256), np.int64),
            np.ones((3, 2), np.int64),
            np.array([0, row], np.int32),
            layout,
        )


def test_a_product_that_is_in_doubt_ends_the_query() -> None:
    layout = Layout(3, 256)
    encrypting = machine_query.Encrypting(layout, np.ones(128, np.complex128))
    element = np.full((6, 128), 0.4 + 0.4j)
    with pytest.raises(Inexact, match="report this machine"):
        encrypting(element, np.zeros(256, np.uint64), np.zeros((2, 256), np.int64))

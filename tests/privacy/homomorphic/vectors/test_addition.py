"""Ciphertexts that are added eight at once hold what they hold when added one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.errors import MessageError
from fedmq.privacy.homomorphic import addition as addition_module
from fedmq.privacy.homomorphic import okamoto_uchiyama, paillier
from fedmq.privacy.homomorphic import scheme as noise
from fedmq.privacy.homomorphic.addition import Addition, EightAtOnce, OneByOne, one_by_one
from fedmq.privacy.homomorphic.histogram import Tricks
from fedmq.privacy.homomorphic.packing import SlotLayout
from fedmq.privacy.homomorphic.residues import Residues, from_wire, to_wire
from fedmq.privacy.homomorphic.scheme import SeededBytes

KEYS = {"ou": okamoto_uchiyama.generate(576), "paillier": paillier.generate(384)}


class Table:
    """Rows, their ciphertexts, and columns of many values, few values and mostly one value."""

    def __init__(self, key: Any, rows: int, features: int, nodes: int, shared: int = 1) -> None:
        random = np.random.default_rng(rows + features)
        self.key, self.codes, self.nodes = key, 9, nodes
        self.layout = SlotLayout.for_sums(2**20, 2**20, key.public.plaintext_bits, shared)
        self.g, self.h = random.integers(-1000, 1000, rows), random.integers(0, 1000, rows)
        skew = np.array([1.0, 1.0, 9.0, 60.0])[np.arange(features) % 4]
        self.bins = (random.random((rows, features)) ** skew * self.codes).astype(np.uint8)
        self.slots = random.integers(-1, nodes, rows)
        plaintexts = self.layout.join(self.g, self.h)
        self.wire = to_wire(key.encrypt(plaintexts), key.public.modulus)
        self.ciphertext_of = np.arange(rows) // shared

    def sums(self, addition: Addition, rows: slice = slice(None)) -> Any:
        return addition.sum_bins(
            self.wire,
            self.ciphertext_of[rows],
            self.bins[rows],
            self.slots[rows],
            nodes=self.nodes,
            codes=np.full(self.bins.shape[1], self.codes),
        )

    def shown(self, addition: Addition, sums: Any, chosen: np.ndarray) -> tuple[Any, Any]:
        """What the key's owner reads of one node: runs of all columns, each from its first bin."""
        runs = [
            first + np.arange(self.codes - feature % 3)
            for feature, first in enumerate(range(0, self.bins.shape[1] * self.codes, self.codes))
        ]
        wire = addition.show(sums, runs, chosen, self.layout)
        return self.layout.unpack(
            self.key.decrypt(from_wire(wire, self.key.public.modulus)), len(chosen)
        )


def both(key: Any) -> tuple[Addition, Addition]:
    return EightAtOnce(key.public, Tricks()), OneByOne(key.public, Tricks())


@pytest.mark.parametrize("engine", KEYS)
@pytest.mark.parametrize(("rows", "features"), [(1, 1), (60, 8), (200, 13)])
def test_what_is_shown_decrypts_to_the_same_sums(engine: str, rows: int, features: int) -> None:
    table = Table(KEYS[engine], rows, features, nodes=2)
    candidates = sum(table.codes - feature % 3 for feature in range(features))
    seen = []
    for addition in both(table.key):
        halves = [
            table.sums(addition, part) for part in (slice(0, rows // 2), slice(rows // 2, rows))
        ]
        merged = addition.merge(halves)
        other = addition.subtract(merged[:1], merged[1:])
        chosen = np.random.default_rng(1).permutation(candidates)
        seen.append(
            [table.shown(addition, sums, chosen) for sums in (merged[:1], merged[1:], other)]
        )
    np.testing.assert_array_equal(seen[0], seen[1])
    whole = np.isin(table.slots, [0])
    left = [table.g[whole & (table.bins[:, 0] <= code)].sum() for code in range(table.codes)]
    at = np.argsort(np.random.default_rng(1).permutation(candidates))[: table.codes]
    np.testing.assert_array_equal(seen[0][0][0][at], left)


def test_rows_that_share_a_ciphertext_are_packed_and_masked_alike() -> None:
    table = Table(KEYS["paillier"], 90, 5, nodes=2, shared=2)
    table.slots = np.arange(90) % 2  # the place of a row in its ciphertext
    chosen = np.random.default_rng(2).permutation(37)
    seen = [table.shown(addition, table.sums(addition), chosen) for addition in both(table.key)]
    np.testing.assert_array_equal(seen[0], seen[1])


def test_the_same_sums_shown_twice_share_no_byte_string() -> None:
    table = Table(KEYS["ou"], 40, 8, nodes=1)
    addition = EightAtOnce(table.key.public, Tricks())
    sums = table.sums(addition)
    runs, chosen = [np.arange(table.codes)], np.zeros(30, np.int64)
    wire = np.concatenate([addition.show(sums, runs, chosen, table.layout) for _ in range(2)])
    assert len({row.tobytes() for row in wire}) == len(wire) > 2


def test_calls_do_not_grow_with_the_bits_of_slots_or_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call takes as long as some ten products."""
    table = Table(KEYS["ou"], 40, 8, nodes=1)
    addition = EightAtOnce(table.key.public, Tricks())
    sums = table.sums(addition)
    calls, call = [], Residues._call
    monkeypatch.setattr(Residues, "_call", lambda *given: calls.append(1) or call(*given))
    runs, chosen = [np.arange(table.codes)], np.zeros(100, np.int64)
    addition.show(sums, runs, chosen, table.layout)
    assert table.layout.slot_bits > 40
    assert len(calls) <= 2 * table.layout.capacity + table.codes + 4


def test_a_ciphertext_that_shares_a_factor_with_the_key_is_refused() -> None:
    table = Table(KEYS["ou"], 40, 8, nodes=1)
    table.wire = to_wire([table.key.q] * 40, table.key.public.modulus)
    addition = EightAtOnce(table.key.public, Tricks(skip_fullest=False))
    sums = table.sums(addition)
    with pytest.raises(MessageError, match="shares a factor"):
        addition.subtract(sums, sums)


def test_columns_of_few_or_mostly_one_value_are_summed_one_by_one() -> None:
    random = np.random.default_rng(0)
    columns = [
        random.integers(0, 32, 10_000),
        random.integers(0, 2, 10_000),
        random.integers(0, 32, 10_000) * (random.random(10_000) < 0.05),
        random.integers(0, 200, 10_000),
    ]
    bins = np.stack(columns, axis=1)
    assert one_by_one(bins, Tricks()).tolist() == [False, True, True, False]
    assert one_by_one(bins, Tricks(skip_fullest=False)).tolist() == [False, True, False, False]
    assert not one_by_one(bins, Tricks(joint=False, skip_fullest=False)).any()


@pytest.mark.parametrize("engine", KEYS)
def test_a_seed_makes_the_same_bytes_again_with_either_arithmetic(engine: str) -> None:
    table = Table(KEYS[engine], 40, 8, nodes=1)
    runs, chosen, random = [np.arange(table.codes)], np.zeros(30, np.int64), SeededBytes(bytes(32))
    first, again = (
        addition.show(table.sums(addition), runs, chosen, table.layout, random)
        for addition in both(table.key)
    )
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("engine", KEYS)
def test_a_table_of_noise_that_is_too_long_is_not_made(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(KEYS[engine], 40, 8, nodes=1)
    runs, chosen, random = [np.arange(table.codes)], np.zeros(30, np.int64), SeededBytes(bytes(32))
    with_table, one_by_one = (
        addition.show(table.sums(addition), runs, chosen, table.layout, random)
        for addition in both(table.key)
    )
    np.testing.assert_array_equal(with_table, one_by_one)

    def refuse(*_: Any) -> Any:
        pytest.fail("a table was made")

    monkeypatch.setattr(noise, "_MOST_TABLE", 1000)
    monkeypatch.setattr(addition_module, "_powers", refuse)
    addition = EightAtOnce(table.key.public, Tricks())
    without = addition.show(table.sums(addition), runs, chosen, table.layout, random)
    np.testing.assert_array_equal(without, with_table)


@pytest.mark.parametrize("engine", KEYS)
def test_a_column_of_many_bins_makes_no_other_longer(engine: str) -> None:
    table = Table(KEYS[engine], 60, 20, nodes=2)
    table.bins[:, 1:] %= 2
    codes = np.array([9] + [2] * 19)
    for addition in both(table.key):
        sums = addition.sum_bins(
            table.wire, table.ciphertext_of, table.bins, table.slots, nodes=2, codes=codes
        )
        assert sums.shape[:2] == (2, 9 + 2 * 19)
        stored = sums.nbytes if isinstance(addition, EightAtOnce) else 0
        assert stored <= sums.shape[0] * sums.shape[1] * addition.sum_bytes
        ends = np.cumsum(codes)
        runs = [np.arange(end - count, end) for end, count in zip(ends, codes, strict=True)]
        wire = addition.show(sums[:1], runs, ends - 1, table.layout)
        plaintexts = table.key.decrypt(from_wire(wire, table.key.public.modulus))
        g, _ = table.layout.unpack(plaintexts, len(codes))
        assert g.tolist() == [table.g[table.slots == 0].sum()] * len(codes)

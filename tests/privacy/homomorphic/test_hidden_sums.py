"""Where an encrypting engine hides sums, both parties hold shares that add up to them.

What the active party decrypts is random, whatever the sums are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.gradients import RESOLUTION_BITS, Gradients
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import CandidateTable
from fedmq.errors import ConfigError, MessageError, Refused
from fedmq.privacy.engine import AskedNode, HiddenSums, Query
from fedmq.privacy.engines.okamoto_uchiyama import OkamotoUchiyama
from fedmq.privacy.engines.paillier import Paillier
from fedmq.privacy.engines.plain import Plain
from fedmq.privacy.hidden_sums.shares import Field
from fedmq.privacy.homomorphic import active as homomorphic_active
from fedmq.privacy.homomorphic import okamoto_uchiyama, paillier
from fedmq.privacy.homomorphic.active import AdditiveActiveShares
from fedmq.privacy.homomorphic.engine import AdditiveEngine
from fedmq.privacy.homomorphic.packing import SlotLayout
from fedmq.privacy.homomorphic.passive import AdditivePassiveShares
from fedmq.privacy.homomorphic.scheme import SeededBytes
from tests.privacy.engine_pair import EnginePair
from tests.privacy.test_engine_contract import expected, gradients, halves, table

pytestmark = pytest.mark.usefixtures("short_exponents")

OU = OkamotoUchiyama(key_bits=1536, allow_weak_keys=True, sums="hidden")
PAILLIER = Paillier(key_bits=512, allow_weak_keys=True, sums="hidden")
ENGINES = [OU, PAILLIER]


class SharingPair(EnginePair):
    """Both halves that share sums, without the circuits that compare them."""

    active: AdditiveActiveShares
    passive: AdditivePassiveShares

    def __init__(self, engine: AdditiveEngine, bins: Any, **settings: Any) -> None:
        super().__init__(engine, bins, **settings)
        self.active, self.passive = self.active._source, self.passive._source

    @property
    def field(self) -> Field:
        assert self.active.field == self.passive.field
        return self.active.field

    def sums(self, node: int) -> np.ndarray:
        """What both shares of a node add up to, as int64 (C, 2)."""
        field = self.field
        both = zip(self.active.shares("telco", node), self.passive.shares(node), strict=True)
        return np.array([added(*pair, field) for pair in both], np.int64).reshape(-1, 2)


def joined(share: np.ndarray, field: Field) -> int:
    return (int(share[0]) << field.bits) + int(share[1])


def added(first: np.ndarray, second: np.ndarray, field: Field) -> tuple[int, int]:
    """g and h of shares; g is signed."""
    modulus = 1 << 2 * field.bits
    number = (joined(first, field) + joined(second, field)) % modulus
    g, h = divmod(number, 1 << field.bits)
    return g - (1 << field.bits) * (g >> (field.bits - 1)), h


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
@pytest.mark.parametrize("pack_sums", [True, False])
def test_shares_add_up_to_the_sums_down_the_tree(engine: AdditiveEngine, pack_sums: bool) -> None:
    bins, held = table(120, 5, seed=1), gradients(120, 2, subsample=0.7)
    pair = SharingPair(type(engine)(**{**vars(engine), "pack_sums": pack_sums}), bins)
    candidates = CandidateTable.of(bins.cuts)
    pair.start_tree(held)
    level = {1: np.arange(120, dtype=np.int32)}
    for depth in range(3):
        orders = {node: np.random.default_rng(node).permutation(len(candidates)) for node in level}
        answers = pair.ask_level(level, candidates, orders)
        for node, rows in level.items():
            assert answers[node] == HiddenSums(len(candidates))
            left = expected(bins, held, rows, candidates)[orders[node]]
            np.testing.assert_array_equal(pair.sums(node), left)
        level = {
            2 * node + side: part
            for node, rows in level.items()
            for side, part in enumerate(halves(rows, depth))
        }


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_of_two_siblings_one_answer_holds_sums(engine: AdditiveEngine) -> None:
    bins, held = table(120, 5, seed=1), gradients(120, 2, subsample=0.7)
    pair = SharingPair(engine, bins)
    candidates = CandidateTable.of(bins.cuts)
    pair.start_tree(held)
    level = {1: np.arange(120, dtype=np.int32)}
    for depth in range(4):
        order = np.arange(len(candidates))
        answers = pair.ask_level(level, candidates, dict.fromkeys(level, order))
        assert answers == dict.fromkeys(level, HiddenSums(len(candidates)))
        for node, rows in level.items():
            np.testing.assert_array_equal(pair.sums(node), expected(bins, held, rows, candidates))
        carrying = {node: int(held.carried[rows].sum()) for node, rows in level.items()}
        smaller = {
            min((node, node ^ 1), key=lambda of: (carrying[of], of)) for node in level if node > 1
        }
        assert smaller == {node for node in level if node > 1 and node in pair.passive._sums}
        level = {
            2 * node + side: part
            for node, rows in level.items()
            for side, part in enumerate(halves(rows, depth))
        }


def test_a_node_is_summed_whose_sibling_or_parent_shows_other_candidates() -> None:
    bins, held = table(120, 5, seed=1), gradients(120, 2)
    candidates = CandidateTable.of(bins.cuts)
    every = np.arange(len(candidates))
    left, right = halves(np.arange(120, dtype=np.int32), 0)
    for orders in ({2: every[2:], 3: every}, {2: every[2:], 3: every[2:]}, {3: every}):
        pair = SharingPair(OU, bins)
        pair.start_tree(held)
        pair.ask_level({1: np.arange(120, dtype=np.int32)}, candidates, {1: every})
        rows = {2: left, 3: right}
        pair.ask_level({node: rows[node] for node in orders}, candidates, orders)
        for node, order in orders.items():
            sums = expected(bins, held, rows[node], candidates)[order]
            np.testing.assert_array_equal(pair.sums(node), sums)


@pytest.mark.parametrize("rest", [3, 0, "all", None])
def test_the_rest_of_other_candidates_is_refused(rest: object) -> None:
    bins = table(60, 3, seed=1)
    candidates = CandidateTable.of(bins.cuts)
    pair = SharingPair(OU, bins)
    pair.start_tree(gradients(60, 2))
    rows = np.arange(60, dtype=np.int32)
    pair.ask_level({1: rows}, candidates, {1: np.arange(len(candidates))})
    asking = pair.active.ask("telco", AskedNode(0, 3, rows[30:]))
    next(asking)
    with pytest.raises(MessageError, match="the rest of node 1, of other candidates"):
        asking.send([{"rest": rest}])
    alone = pair.active.ask("telco", AskedNode(0, 3, rows[30:]))
    next(alone)
    with pytest.raises(StopIteration):
        alone.send([{"rest": len(candidates)}])
    with pytest.raises(MessageError, match="the rest of node 1, without its other part"):
        pair.active.shares("telco", 3)


@pytest.mark.parametrize("bits", [2, 8])
def test_shares_add_up_where_rows_share_a_ciphertext(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homomorphic_active, "_PACKING", 0)
    bins = table(120, 5, seed=1)
    random = np.random.default_rng(2)
    margins, labels = random.normal(size=120), random.integers(0, 2, 120)
    held = Gradients.of(
        margins.astype(np.float32),
        labels.astype(np.float32),
        np.ones(120, np.bool_),
        TrainParams(gradient_bits=bits),
        0,
    )
    pair = SharingPair(PAILLIER, bins, value_bits=bits - 1)
    candidates = CandidateTable.of(bins.cuts)
    pair.start_tree(held)
    assert pair.active._layout.rows > 1
    rows = np.arange(120, dtype=np.int32)
    pair.ask_level({1: rows}, candidates, {1: np.arange(len(candidates))})
    np.testing.assert_array_equal(pair.sums(1), expected(bins, held, rows, candidates))


@dataclass(frozen=True)
class Extreme:
    """Draws nothing but one byte: masks at an end of their range."""

    byte: bytes

    def draw(self, purpose: bytes, index: int, size: int) -> bytes:
        return self.byte * size


@pytest.mark.parametrize("bits", [24, 57, 64])
@pytest.mark.parametrize("sign", [1, -1])
def test_no_mask_carries_into_a_neighbour(bits: int, sign: int) -> None:
    layout, field = SlotLayout.for_shares(bits, 2047), Field(bits)
    count = layout.capacity
    largest = field.bound - 1
    sums = [sign * largest << bits | largest * (place % 2) for place in range(count)]
    packed = sum(number << place * layout.slot_bits for place, number in enumerate(sums))
    for random in (SeededBytes(), Extreme(b"\0"), Extreme(b"\xff")):
        [mask] = layout.masks(count, random)
        opened = packed + mask
        assert abs(opened) < 1 << 2046  # what a plaintext of 2047 bits holds
        shares = zip(
            layout.unpack_shares([opened], count), layout.kept_shares(count, random), strict=True
        )
        found = [added(*pair, field) for pair in shares]
        assert found == [(sign * largest, largest * (place % 2)) for place in range(count)]


def opened(layout: SlotLayout, number: int, times: int) -> np.ndarray:
    """The active party's shares of the same sum, (times, 2)."""
    plaintexts = [mask + number for mask in layout.masks(times)]
    return layout.unpack_shares(plaintexts, times)


@pytest.mark.parametrize("g", [-(2**40), 0, 2**40])
def test_each_field_of_a_share_is_uniform_whatever_the_sum_is(g: int) -> None:
    layout, times = SlotLayout.for_shares(43, 180), 4000
    assert layout.capacity == 1
    number = g * 2**43 + abs(g)
    for field in opened(layout, number, times).T:
        for bit in range(43):
            share = np.mean(field >> np.uint64(bit) & np.uint64(1))
            assert abs(share - 0.5) < 5 * 0.5 / times**0.5
        counts = np.bincount((field >> np.uint64(39)).astype(np.int64), minlength=16)
        assert np.sum((counts - times / 16) ** 2) / (times / 16) < 60  # chi-square, 15 degrees


def test_sums_are_not_recovered_from_many_shares_of_them() -> None:
    layout, times = SlotLayout.for_shares(43, 180), 4000
    small, large = (opened(layout, g * 2**43, times)[:, 0] for g in (1, 2**40))
    together = np.sort(np.concatenate([small, large]))
    below = [np.searchsorted(np.sort(one), together, side="right") for one in (small, large)]
    distance = np.abs(below[0] - below[1]).max() / times
    assert distance < 1.95 * (2 / times) ** 0.5  # Kolmogorov and Smirnov, at 1 in 1000
    # Averages of shares are as good as any guess: a modulus away from the sum.
    assert abs(large.astype(np.float64).mean() / 2**43 - 0.5) < 5 * 12**-0.5 / times**0.5


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_another_question_gets_other_masks(engine: AdditiveEngine) -> None:
    bins, rows = table(60, 3, seed=1), np.arange(60, dtype=np.int32)
    candidates = CandidateTable.of(bins.cuts)
    order = np.arange(len(candidates))
    pair = SharingPair(engine, bins)
    held = gradients(60, 2)

    def seed(asked: np.ndarray, order: np.ndarray) -> bytes:
        return pair.passive._seed(Query(0, 1, 0, asked, candidates, order, ()))

    pair.start_tree(held)
    first = seed(rows, order)
    assert first == seed(rows, order)
    others = [seed(rows[1:], order), seed(rows, order[::-1])]
    pair.start_tree(held)  # the same gradients, under other noise
    assert len({first, *others, seed(rows, order)}) == 4


@pytest.mark.parametrize("vectors", [True, False])
def test_a_sum_that_is_masked_is_the_same_modulo_the_field(vectors: bool) -> None:
    for make in (paillier.generate, okamoto_uchiyama.generate):
        key = make(768)
        public = key.public
        if isinstance(public, okamoto_uchiyama.PublicKey):
            [one] = key.encrypt([1])
            public = okamoto_uchiyama.check_public(
                int(public.n), int(public.noise_base), public.noise_bits, 0, "bank", int(one)
            )
        most = 1 << (public.plaintext_bits - 2)
        plaintexts = [0, 1, -1, 12345, most, -most]
        masks = [5, -5, 1, -(1 << 100), most - 1, 1 - most]
        masked = public.add_plaintexts(key.encrypt(plaintexts), masks)
        both = [a + b for a, b in zip(plaintexts, masks, strict=True)]
        assert key.decrypt(public.rerandomise(masked), vectors=vectors) == both


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("one", None),
        ("version", 0),
        ("version", None),
        ("one", np.zeros(4, np.uint8)),
        ("seed", np.zeros(3, np.uint8)),
        ("circuits", np.zeros((2, 256), np.uint8)),
        ("back", np.zeros((128, 256), np.uint8)),
    ],
)
def test_malformed_terms_are_refused(name: str, value: object) -> None:
    bins = table(20, 2, seed=1)
    active = OU.active(1)
    active.start_session(np.ones(20, np.bool_), RESOLUTION_BITS)
    public = EnginePair._run(active.open())
    OU.passive(public, bins, 1)
    with pytest.raises(Refused):
        OU.passive({**public, name: value}, bins, 1)


def test_whoever_hides_sums_shows_none() -> None:
    with pytest.raises(Refused, match='takes part with sums = "hidden" only'):
        OU.on_terms("shown")
    with pytest.raises(Refused, match="'plain' hides no sums"):
        Plain().on_terms("hidden")
    assert OkamotoUchiyama().on_terms("hidden").hides_sums
    assert "no sum" in PAILLIER.disclosed.active
    with pytest.raises(ConfigError, match="sums = 'some': use shown, hidden"):
        OkamotoUchiyama(sums="some")  # type: ignore[arg-type]


def test_an_answer_without_a_question_is_refused() -> None:
    pair = SharingPair(PAILLIER, table(20, 2, seed=1))
    with pytest.raises(MessageError, match="node 1, about which nothing was asked"):
        pair.passive.shares(1)

"""With ``gradient_bits`` rows share a ciphertext: the sums are the same, and show no more."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from fedmq.boosting.gradients import RESOLUTION_BITS, Gradients
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import CandidateTable
from fedmq.errors import MessageError
from fedmq.privacy.engine import BroadcastPiece, Sums
from fedmq.privacy.engines.paillier import Paillier
from fedmq.privacy.homomorphic import active as homomorphic_active
from fedmq.privacy.homomorphic import paillier
from fedmq.privacy.homomorphic import passive as homomorphic_passive
from fedmq.privacy.homomorphic.packing import SlotLayout
from fedmq.simulation.simulate import simulate
from tests.how_often import seldom
from tests.privacy.engine_pair import EnginePair
from tests.privacy.test_engine_contract import expected, table

KEY = paillier.generate(512)


def rounded(rows: int, bits: int, subsample: float = 0.7) -> Gradients:
    random = np.random.default_rng(2)
    margins = random.normal(size=rows).astype(np.float32)
    labels = random.integers(0, 2, rows).astype(np.float32)
    params = TrainParams(gradient_bits=bits, subsample=subsample)
    return Gradients.of(margins, labels, np.ones(rows, np.bool_), params, 0)


@pytest.mark.parametrize("most", [1, 2, 3, 4])
@pytest.mark.parametrize("bits", [2, 16])
def test_sums_are_exact_down_the_tree(
    bits: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homomorphic_active, "MOST_SHARED", most)
    monkeypatch.setattr(homomorphic_active, "_PACKING", 0)
    monkeypatch.setattr(homomorphic_active, "_MOST_ROWS_PER_PIECE", 7)
    monkeypatch.setattr(homomorphic_passive, "_FEWEST_ROWS", 20)
    bins, held = table(120, 5, seed=1), rounded(120, bits)
    pair = EnginePair(Paillier(512, allow_weak_keys=True), bins, value_bits=bits - 1)
    candidates = CandidateTable.of(bins.cuts)
    pair.start_tree(held)
    rows = np.arange(120, dtype=np.int32)
    left = np.random.default_rng(3).random(120) < 0.4
    for level in ({1: rows}, {2: rows[left], 3: rows[~left]}):
        orders = {node: np.random.default_rng(node).permutation(len(candidates)) for node in level}
        answers = pair.ask_level(level, candidates, orders)
        for node, standing in level.items():
            answer = answers[node]
            assert isinstance(answer, Sums)
            np.testing.assert_array_equal(
                answer.left, expected(bins, held, standing, candidates)[orders[node]]
            )


def test_what_lies_beside_a_sum_is_masked() -> None:
    layout = SlotLayout.for_sums(100, 100, KEY.public.plaintext_bits, rows=3)
    assert layout.capacity == 2
    g, h = np.full(6, 1, np.int64), np.full(6, 1, np.int64)
    first, second = KEY.encrypt(layout.join(g, h))
    modulus = KEY.public.modulus
    # Of the first three rows the first and third go left, of the others the second.
    total = [[first] * 2, [second] * 2, [first] * 2]
    packed = layout.pack(layout.by_place(total), modulus)
    covered = KEY.public.add_plaintexts(packed, layout.masks(2))
    pairs = np.stack(layout.unpack(KEY.decrypt(covered), 2), axis=1)
    assert pairs.tolist() == [[3, 3], [3, 3]]
    [bare], [plaintext] = KEY.decrypt(packed), KEY.decrypt(covered)
    assert max(map(abs, beside(layout, bare))) < 2**layout.sum_bits
    assert min(map(abs, beside(layout, plaintext))) > 2**layout.sum_bits
    [again] = KEY.decrypt(KEY.public.add_plaintexts(packed, layout.masks(2)))
    assert not set(beside(layout, again)) & set(beside(layout, plaintext))


def beside(layout: SlotLayout, plaintext: int) -> list[int]:
    """The slots of a plaintext of two sums that hold none, as balanced digits."""
    bits, slots = layout.slot_bits, 3 * layout.rows - 1
    half = 1 << (bits - 1)
    lifted = int(plaintext) + sum(half << bits * slot for slot in range(slots))
    digits = [((lifted >> bits * slot) & ((1 << bits) - 1)) - half for slot in range(slots)]
    return [digit for slot, digit in enumerate(digits) if (slot + 1) % layout.rows]


def test_a_sum_wider_than_its_slot_is_refused() -> None:
    layout = SlotLayout.for_sums(100, 100, KEY.public.plaintext_bits, rows=2)
    too_wide = 1 << (layout.slot_bits + layout.sum_bits)
    with pytest.raises(MessageError, match="more than its slots"):
        layout.unpack(KEY.decrypt(KEY.encrypt([too_wide])), 1)


@pytest.mark.parametrize(("vectors", "rows"), [(True, 4), (False, 3)])
def test_more_rows_share_a_ciphertext_where_eight_are_packed_at_once(
    vectors: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homomorphic_active, "is_available", lambda: vectors)
    monkeypatch.setattr(homomorphic_active, "eight_times", lambda: 1.4)
    pair = EnginePair(Paillier(2048), table(120, 5, seed=1), value_bits=3)
    half = pair.active
    assert isinstance(half, homomorphic_active.AdditiveActive)
    half._sums_of_tree = 800
    assert half._best_layout(30_000 << 3, 30_000, rounded(120, 4)).rows == rows


@pytest.mark.parametrize(
    "changed", [{"rows": 0}, {"rows": True}, {"rows": 400}, {"capacity": 10}, {"slot": 30}]
)
def test_a_layout_without_room_for_masks_is_refused(
    changed: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homomorphic_active, "_PACKING", 0)
    bins = table(120, 5, seed=1)
    pair = EnginePair(Paillier(512, allow_weak_keys=True), bins, value_bits=3)
    plan = pair.active.broadcast(rounded(120, 4))[0]
    piece = pair._run(plan)
    assert piece.values["rows"] > 1
    with pytest.raises(MessageError):
        pair._run(pair.passive.receive(0, BroadcastPiece(piece.rows, piece.values | changed)))


@pytest.mark.parametrize(("value_bits", "refused"), [(3, False), (RESOLUTION_BITS, True)])
def test_rows_share_ciphertexts_only_where_memory_was_reckoned_for_it(
    value_bits: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homomorphic_active, "_PACKING", 0)
    pair = EnginePair(
        Paillier(512, allow_weak_keys=True), table(120, 5, seed=1), value_bits=value_bits
    )
    piece = pair._run(pair.active.broadcast(rounded(120, 4))[0])
    assert piece.values["rows"] > 1
    with pytest.raises(MessageError, match="does not fit") if refused else nullcontext():
        pair._run(pair.passive.receive(0, piece))


def test_five_rows_in_a_ciphertext_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homomorphic_active, "_PACKING", 0)
    monkeypatch.setattr(homomorphic_active, "MOST_SHARED", 5)
    pair = EnginePair(Paillier(1024, allow_weak_keys=True), table(120, 5, seed=1), value_bits=3)
    piece = pair._run(pair.active.broadcast(rounded(120, 4))[0])
    assert piece.values["rows"] == 5
    with pytest.raises(MessageError, match="does not fit"):
        pair._run(pair.passive.receive(0, piece))


@pytest.mark.parametrize("engine", ["ou", "smm2", *seldom("paillier", "smm1")])
@pytest.mark.parametrize("bits", [2, *seldom(4, 16)])
def test_every_engine_grows_the_trees_of_plain(engine: str, bits: int) -> None:
    random = np.random.default_rng(0)
    values = random.normal(size=(400, 6)).round(1)
    values[random.random(values.shape) < 0.1] = np.nan
    label = np.nansum(values, axis=1) + random.normal(size=400) > 0
    weak = {"key_bits": 512, "allow_weak_keys": True} if engine in ("paillier", "ou") else {}
    shares = [
        simulate(
            active=values[:, :3],
            label=label.astype(int),
            passive={"telco": values[:, 3:]},
            params=TrainParams(num_boost_round=3, max_depth=3, max_bin=16, gradient_bits=bits),
            engine=name,
            engine_options=options,
            workers=1,
        )
        for name, options in (("plain", {}), (engine, weak))
    ]
    plain, other = shares
    assert plain.share.model_dump_json() == other.share.model_dump_json()
    assert (
        plain.passive_shares["telco"].model_dump_json()
        == other.passive_shares["telco"].model_dump_json()
    )

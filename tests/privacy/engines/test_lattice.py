"""The lattice engine learns the plain engine's model, and is careful about what it is sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.candidates import CandidateTable
from fedmq.errors import ConfigError, DataError, MessageError, Refused
from fedmq.privacy.engine import BroadcastPiece, Query
from fedmq.privacy.engines.lattice import Lattice
from fedmq.privacy.lattice.layout import Layout
from fedmq.privacy.plan import PIECE_BYTES
from tests.privacy.engine_pair import EnginePair
from tests.privacy.test_engine_contract import gradients, table


def test_no_option_is_no_number_of_bytes() -> None:
    with pytest.raises(ConfigError, match="hint_bytes = 0"):
        Lattice(hint_bytes=0)


def test_a_hint_that_is_too_long_is_refused_before_it_is_made() -> None:
    bins = table(50, 4, seed=0)
    candidates = len(CandidateTable.of(bins.cuts))
    pattern = rf"{candidates} candidates need a hint of [\d,]+ bytes, .* use engine 'ou'"
    with pytest.raises(Refused, match=pattern):
        EnginePair(Lattice(hint_bytes=10**6), bins)


def test_too_many_rows_are_refused_before_anything_is_made() -> None:
    values = np.zeros((2**21, 1), np.float32)
    bins = BinMatrix.of(values, Cuts.of(values, 4))
    with pytest.raises(DataError, match="2,097,152 rows; engine 'lattice'"):
        EnginePair(Lattice(), bins)


@pytest.mark.parametrize("change", [{"seed": 3}, {"seed": np.zeros(31, np.uint8)}, {"more": 1}])
def test_malformed_terms_are_refused(change: dict[str, Any]) -> None:
    bins = table(20, 2, seed=0)
    public = {**public_of(Lattice()), **change}
    with pytest.raises(Refused, match="malformed"):
        Lattice().passive(public, bins, 1)


def public_of(engine: Lattice) -> dict[str, Any]:
    plan = engine.active(1).open()
    try:
        next(plan)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("nothing is computed to open")


def test_every_piece_fits_a_message() -> None:
    pair = EnginePair(Lattice(), table(9000, 3, seed=0))
    pair.start_tree(gradients(9000, 1))
    candidates = CandidateTable.of(pair.bins.cuts)
    sizes = []
    advance = pair._advance

    def watched(plan: Any, value: Any) -> Any:
        step = advance(plan, value)
        pieces = getattr(step, "pieces", ())
        sizes.extend(sum(array.nbytes for array in piece.values()) for piece in pieces)
        return step

    pair._advance = watched  # type: ignore[method-assign]
    rows = np.arange(9000, dtype=np.int32)
    pair.ask_wave({1: rows}, candidates, {1: np.arange(len(candidates))})
    assert sizes
    assert max(sizes) <= PIECE_BYTES


def test_more_answers_than_the_budget_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bins = table(40, 2, seed=0)
    candidates = CandidateTable.of(bins.cuts)
    pair = EnginePair(Lattice(), bins)
    pair.start_tree(gradients(40, 0))
    rows, order = np.arange(40, dtype=np.int32), np.arange(len(candidates))
    monkeypatch.setattr(Layout, "most_answers", 2 * len(candidates))
    for _ in range(2):
        pair.ask_wave({1: rows}, candidates, {1: order})
    with pytest.raises(Refused, match="would tell of single rows"):
        pair.ask_wave({1: rows}, candidates, {1: order})


def test_a_malformed_query_fails_the_session() -> None:
    bins = table(40, 2, seed=0)
    candidates = CandidateTable.of(bins.cuts)
    pair = EnginePair(Lattice(), bins)
    rows = np.arange(40, dtype=np.int32)
    query = Query(0, 1, 0, rows, candidates, np.arange(len(candidates)), [{"rows": 1}])
    with pytest.raises(MessageError, match="a query of 1 pieces, not 2"):
        pair._run(pair.passive.answer([query]), {})


def test_a_broadcast_is_no_part_of_it() -> None:
    pair = EnginePair(Lattice(), table(40, 2, seed=0))
    piece = BroadcastPiece(np.arange(3, dtype=np.uint32), {})
    with pytest.raises(MessageError, match="broadcasts no gradients"):
        pair._run(pair.passive.receive(0, piece))


@pytest.mark.parametrize("pieces", [[{}], [{"rows": 40, "candidates": 1}]])
def test_a_setup_that_is_cut_short_is_refused(pieces: list[dict[str, Any]]) -> None:
    active = Lattice().active(1)
    pair = EnginePair(Lattice(), table(40, 2, seed=0))
    pair._run(active.open())
    with pytest.raises(MessageError, match=r"telco (does not say|sent hints for 0 of 1)"):
        pair._run(active.setup("telco", pieces))

"""A file of scores with contributions: XGBoost's where owners show columns, whatever is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import xgboost

from fedmq.boosting.model.tree import DisclosedColumns
from fedmq.boosting.xgboost_comparison.export import to_booster
from fedmq.boosting.xgboost_comparison.pooled_tree import PooledTree, pooled_feature_names
from fedmq.computation import Given
from fedmq.messages.array import Array, Bitmap
from fedmq.messages.inference import HopReply, InferenceAccept, InferenceHop, InferenceRows
from fedmq.protocol.inference.active import ExplainedInference
from fedmq.protocol.inference.passive import PassiveInference, PassiveRows
from fedmq.protocol.machine import Machine
from fedmq.protocol.record_columns import record_columns
from tests.protocol.federation import ACTIVE, Federation, ran, small
from tests.simulator import Link

IDS = [f"customer {row}" for row in range(80)]


def explaining(
    federation: Federation,
    shares: Mapping[str, Any],
    asked: list[str],
    showing: tuple[str, ...] = ("telco", "shop"),
    base_margin: Any = None,
) -> dict[str, Machine]:
    """Machines that explain the rows ``asked``; passive parties hold them in reverse."""
    active = ExplainedInference(
        shares[ACTIVE],
        federation.columns[ACTIVE],
        asked,
        partial=True,
        texts={},
        base_margin=base_margin,
    )
    machines: dict[str, Machine] = {ACTIVE: active}
    row_of = {name: row for row, name in enumerate(reversed(IDS))}
    for peer in active.peers:
        rows = PassiveRows(shares[peer], federation.columns[peer][::-1], row_of)

        def columns(share: Any, records: int, peer: str = peer) -> Any:
            if peer not in showing:
                return None
            return record_columns(DisclosedColumns.of(share.lookup_table, records, {}))

        machines[peer] = PassiveInference(ACTIVE, Given(rows), lambda _: None, columns)
    return machines


def contributions_of_xgboost(federation: Federation, shares: Mapping[str, Any]) -> Any:
    tables = [shares[party].lookup_table for party in federation.columns]
    share = shares[ACTIVE]
    trees = [PooledTree.of(tree, tables) for tree in share.used_trees]
    booster = to_booster(
        trees, share.params, pooled_feature_names(tuple(federation.columns), tables)
    )
    joined = np.hstack(list(federation.columns.values()))
    matrix = xgboost.DMatrix(joined, feature_names=booster.feature_names)
    return booster, matrix


@pytest.mark.parametrize(
    "params",
    [{}, {"objective": "multi:softprob", "num_class": 3}],
    ids=["one number", "classes"],
)
def test_contributions_are_xgboost_s_whatever_befalls_the_messages(
    monkeypatch: pytest.MonkeyPatch, params: dict[str, Any]
) -> None:
    monkeypatch.setattr("fedmq.protocol.inference.active._ROWS_PER_QUESTION", 30)
    federation = small(num_boost_round=3, max_depth=4, **params)
    if params:
        federation = federation.having(label=np.arange(80, dtype=np.float32) % 3, base_score=None)
    shares = federation.train().results
    booster, matrix = contributions_of_xgboost(federation, shares)
    expected = booster.predict(matrix, pred_contribs=True).reshape(80, -1, 6)
    plain = ran(federation.scoring(shares)).results[ACTIVE]
    asked = ["stranger", *IDS[1:]]
    for seed in range(6):
        link = Link(drop=0.1 * (seed % 3), repeat=0.3, delay=2.0 * (seed % 2))
        simulation = ran(explaining(federation, shares, asked), seed=seed, link=link)
        assert not simulation.errors
        scores = simulation.results[ACTIVE]
        np.testing.assert_array_equal(scores.margins[1:], plain.margins[1:])
        np.testing.assert_array_equal(scores.predictions[1:], plain.predictions[1:])
        for of_row in (scores.margins, scores.predictions, scores.contributions):
            assert np.isnan(of_row[0]).all()
        found = np.zeros_like(expected)
        for number, player in enumerate(scores.players):
            found[:, :, column_of(federation, shares, player)] += scores.contributions[:, :, number]
        found[:, :, -1] = scores.contributions[:, :, -1]
        np.testing.assert_allclose(found[1:], expected[1:], atol=1e-5)


def test_rows_start_at_margins_of_their_own_in_the_bias_alone() -> None:
    federation = small(num_boost_round=3, max_depth=4)
    shares = federation.train().results
    start = np.linspace(-2, 2, 80).astype(np.float32)
    plain, moved = (
        ran(explaining(federation, shares, IDS, base_margin=margin)).results[ACTIVE]
        for margin in (None, start)
    )
    np.testing.assert_array_equal(moved.contributions[:, :, :-1], plain.contributions[:, :, :-1])
    np.testing.assert_allclose(moved.contributions.sum(axis=2)[:, 0], moved.margins, atol=1e-5)
    booster, matrix = contributions_of_xgboost(federation, shares)
    matrix.set_base_margin(start)
    expected = booster.predict(matrix, pred_contribs=True)
    np.testing.assert_allclose(moved.contributions[:, 0, -1], expected[:, -1], atol=1e-5)
    margins = booster.predict(matrix, output_margin=True)
    np.testing.assert_allclose(moved.margins, margins, atol=1e-5)


def column_of(federation: Federation, shares: Mapping[str, Any], player: Any) -> int:
    """Where the joined table has the column of ``player``."""
    before = 0
    for party, values in federation.columns.items():
        if party == player.party:
            break
        before += values.shape[1]
    table = shares[player.party].lookup_table
    if player.party == ACTIVE:
        return before + table.feature_names.index(player.column)
    return before + list(dict.fromkeys(table.feature.tolist()))[player.column]


def test_who_shows_no_columns_is_one_player() -> None:
    federation = small()
    shares = federation.train().results
    scores = ran(explaining(federation, shares, IDS, showing=("telco",))).results[ACTIVE]
    assert [str(player) for player in scores.players][-1] == "shop"
    sums = scores.contributions[:, 0].sum(axis=1)
    np.testing.assert_allclose(sums, scores.margins, atol=1e-5)


def test_nobody_walks_and_an_answer_is_a_bit_for_each_row_and_record() -> None:
    federation = small()
    shares = federation.train().results
    bodies: list[Any] = []
    ran(explaining(federation, shares, IDS), tap=lambda envelope: bodies.append(envelope.body))
    assert not any(isinstance(body, InferenceHop) for body in bodies)
    counts = {body.left.count for body in bodies if isinstance(body, HopReply)}
    assert counts == {80 * len(shares[peer].lookup_table) for peer in federation.peers}


def test_a_party_whose_share_has_fewer_records_refuses() -> None:
    federation = small()
    shares = federation.train().results
    table = shares["telco"].lookup_table
    fewer = {name: getattr(table, name)[:1] for name in ("feature", "threshold", "default_left")}
    cut = shares["telco"].model_copy(
        update={"lookup_table": table.model_copy(update=fewer), "places": ()}
    )
    simulation = ran(explaining(federation, {**shares, "telco": cut}, IDS))
    assert "this party has 1 records, not" in str(simulation.errors[ACTIVE])
    assert "shares of different models" in str(simulation.errors[ACTIVE])


def _another_part(reply: HopReply) -> HopReply:
    return reply.model_copy(update={"hop": reply.hop + 1000})


def _too_short(reply: HopReply) -> HopReply:
    return HopReply(hop=reply.hop, left=Bitmap.of(reply.left.numpy()[:-1]))


def _beyond(asked: InferenceRows) -> InferenceRows:
    return InferenceRows(hop=asked.hop, rows=Array.of(asked.rows.numpy() + np.uint32(100_000)))


def _too_many_columns(accept: InferenceAccept) -> InferenceAccept:
    assert accept.columns is not None
    column = Array.of(np.append(accept.columns.column.numpy(), np.uint32(0)))
    columns = accept.columns.model_copy(update={"column": column})
    return accept.model_copy(update={"columns": columns})


@pytest.mark.parametrize("forge", [_another_part, _too_short, _beyond, _too_many_columns])
def test_a_breach_of_the_protocol_ends_the_session_on_both_sides(
    forge: Callable[[Any], Any],
) -> None:
    federation = small(counts=(2, 2))
    shares = federation.train().results
    (of,) = (kind for name, kind in forge.__annotations__.items() if name != "return")
    simulation = ran(
        explaining(federation, shares, IDS),
        rewrite=lambda sent: forge(sent.body) if type(sent.body).__name__ == of else sent.body,
    )
    assert set(simulation.errors) == {ACTIVE, "telco"}
    assert all("broke the protocol" in str(error) for error in simulation.errors.values())


def test_all_directions_are_answered_only_where_that_was_agreed() -> None:
    federation = small(counts=(2, 2))
    shares = federation.train().results

    def all_at_once(sent: Any) -> Any:
        if isinstance(sent.body, InferenceHop):
            return InferenceRows(hop=sent.body.hop, rows=sent.body.rows)
        return sent.body

    simulation = ran(federation.scoring(shares), rewrite=all_at_once)
    assert "asks for all directions, which the terms exclude" in str(simulation.errors["telco"])

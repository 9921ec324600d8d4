"""Reasons for scores: XGBoost's where all columns are told apart, else of parties as players."""

from __future__ import annotations

from itertools import combinations
from math import factorial
from typing import Any

import numpy as np
import pytest
import xgboost
from numpy.typing import NDArray
from pydantic import ValidationError

import fedmq
from fedmq.boosting.model.contributions import Explainer, Player
from fedmq.boosting.model.served_forest import ServedForest
from fedmq.boosting.model.tree import LEAF, DisclosedColumns, LookupTable, text_of
from tests.boosting.tables import scattered

ROWS = 250
X, Y = scattered(ROWS, 6, seed=4, missing=0.1)
TABLES = {"active": X[:, :2], "telco": X[:, 2:5], "shop": X[:, 5:]}
CLASSES = np.digitize(np.nan_to_num(X[:, 0]), [-0.5, 0.5])


def trained(**params: Any) -> fedmq.SimulatedModel:
    return fedmq.simulate(
        active=TABLES["active"],
        label=CLASSES if "num_class" in params else Y,
        passive={party: TABLES[party] for party in ("telco", "shop")},
        params=fedmq.TrainParams(num_boost_round=6, max_bin=16, **params),
        engine="plain",
    )


@pytest.fixture(scope="module")
def model() -> fedmq.SimulatedModel:
    return trained(max_depth=4)


def directions(model: fedmq.SimulatedModel, served: ServedForest) -> NDArray[np.bool_]:
    """As bitmaps of all parties give them."""
    bitmaps = {}
    for owner, party in served.asked.items():
        table, records = model.passive_shares[party].lookup_table, len(served.node_of[owner])
        bitmaps[owner] = table.directions(
            TABLES[party], np.repeat(np.arange(ROWS), records), np.tile(np.arange(records), ROWS)
        ).reshape(ROWS, records)
    return served.directions(TABLES["active"], bitmaps)


def shown(model: fedmq.SimulatedModel, served: ServedForest) -> dict[str, DisclosedColumns]:
    tables = {party: share.lookup_table for party, share in model.passive_shares.items()}
    return {
        party: DisclosedColumns.of(tables[party], len(served.node_of[owner]), {})
        for owner, party in served.asked.items()
    }


@pytest.mark.parametrize(
    "params",
    [
        {"max_depth": 4},
        {"max_depth": 9, "min_child_weight": 0.0},
        {"objective": "multi:softprob", "num_class": 3, "max_depth": 3},
        {"booster": "dart", "rate_drop": 0.3, "max_depth": 3},
        {"num_parallel_tree": 2, "max_depth": 3},
    ],
    ids=["depth 4", "depth 9", "classes", "dart", "forests"],
)
def test_where_all_show_their_columns_the_values_are_xgboost_s(params: dict[str, Any]) -> None:
    model = trained(**params)
    served = ServedForest.of(model.share)
    columns = shown(model, served)
    explainer = Explainer.of(served, columns)
    left = directions(model, served)
    found = explainer.contributions(left)
    booster = model.to_xgboost()
    names = booster.feature_names
    expected = booster.predict(xgboost.DMatrix(X, feature_names=names), pred_contribs=True)
    expected = expected.reshape(ROWS, -1, len(names) + 1)
    owned = [f"{player.party}.{_name(model, columns, player)}" for player in explainer.players]
    others = [place for place, name in enumerate(names) if name not in owned]
    assert not expected[:, :, others].any()
    places = [*(names.index(name) for name in owned), len(names)]
    np.testing.assert_allclose(found, expected[:, :, places], atol=1e-5)
    margins = served.scores(served.leaves(left))[0].reshape(ROWS, -1)
    np.testing.assert_allclose(found.sum(axis=2), margins, atol=1e-5)


def _name(
    model: fedmq.SimulatedModel, columns: dict[str, DisclosedColumns], player: Player
) -> str | int | None:
    if player.party == "active":
        return player.column
    table = model.passive_shares[player.party].lookup_table
    record = columns[player.party].column.tolist().index(player.column)
    return table.feature_names[table.feature[record]]


def expectation(
    served: ServedForest, players: NDArray[np.intp], left: NDArray[np.bool_], known: set[int]
) -> float:
    """The margin that a row is expected to have, of which ``known`` players show directions."""
    forest = served.forest
    cover = np.concatenate([tree.cover for tree in served.share.used_trees])

    def below(node: int) -> float:
        if forest.owner[node] == LEAF:
            return float(forest.weight[node])
        children = int(forest.left[node]), int(forest.right[node])
        if int(players[node]) in known:
            return below(children[0] if left[node] else children[1])
        return float(np.average([below(child) for child in children], weights=cover[[*children]]))

    return sum(below(int(root)) for root in forest.roots)


def test_parties_that_show_no_columns_are_the_players_of_the_quotient_game(
    model: fedmq.SimulatedModel,
) -> None:
    served = ServedForest.of(model.share)
    columns = shown(model, served)
    explainer = Explainer.of(served, {"telco": columns["telco"]})
    names = [*model.share.lookup_table.feature_names]
    telco = len(columns["telco"].texts)
    assert [str(player) for player in explainer.players] == [
        *(f"active.{name}" for name in names),
        *(f"telco.{number}" for number in range(telco)),
        "shop",
    ]
    of_owner = [
        model.share.lookup_table.feature,
        len(names) + columns["telco"].column,
        np.full(len(model.passive_shares["shop"].lookup_table), len(names) + telco),
    ]
    player_of = np.full(len(served.forest.owner), -1, np.intp)
    for owner, numbers in enumerate(of_owner):
        nodes = np.flatnonzero(served.forest.owner == owner)
        player_of[nodes] = numbers[served.forest.record[nodes]]
    left = directions(model, served)
    found = explainer.contributions(left)[:, 0]
    n, everybody = len(explainer.players), set(range(len(explainer.players)))
    for row in (0, 17):
        worth = {
            frozenset(known): expectation(served, player_of, left[row], set(known))
            for size in range(n + 1)
            for known in combinations(everybody, size)
        }
        for player in everybody:
            expected = sum(
                factorial(len(known)) * factorial(n - len(known) - 1) / factorial(n)
                * (worth[known | {player}] - worth[known])
                for known in worth
                if player not in known
            )  # fmt: skip
            assert found[row, player] == pytest.approx(expected, abs=1e-5)


def test_a_party_of_one_column_counts_the_same_either_way_and_others_do_not_add_up(
    model: fedmq.SimulatedModel,
) -> None:
    served = ServedForest.of(model.share)
    left, columns = directions(model, served), shown(model, served)
    by_column = Explainer.of(served, columns).contributions(left)[:, 0]
    whole = Explainer.of(served, {"telco": columns["telco"]}).contributions(left)[:, 0]
    np.testing.assert_allclose(whole, by_column, atol=1e-6)  # shop has one column
    by_party = Explainer.of(served, {}).contributions(left)[:, 0]
    np.testing.assert_allclose(by_party.sum(axis=1), by_column.sum(axis=1), atol=1e-5)
    of_telco = by_column[:, 2 : 2 + len(columns["telco"].texts)].sum(axis=1)
    assert not np.allclose(by_party[:, 2], of_telco, atol=1e-3)  # another game, not their sum


def test_columns_have_numbers_in_the_order_of_their_first_use_and_their_owner_s_words() -> None:
    table = LookupTable.empty(("city=Ulm", "income", "born.age", "city=Bonn"))
    table = table.appended([2, 0, 2, 3, 1], [0.0] * 5, [True] * 5)
    words = {"born": "young", "city": "where they live", "income": "little income"}
    columns = DisclosedColumns.of(table, 4, words)
    assert columns.column.tolist() == [0, 1, 0, 2]
    assert columns.texts == ("young", "where they live", "where they live")
    assert text_of("income", {}) == ""
    assert text_of("income=low", {"income=low": "low", "income": "income"}) == "low"
    assert text_of("incomes", words) == ""
    with pytest.raises(ValidationError, match="not numbered from 0 in the order"):
        DisclosedColumns(column=[1, 0], texts=("a", "b"))
    with pytest.raises(ValidationError, match="not numbered from 0 in the order"):
        DisclosedColumns(column=[0, 0], texts=("a", "b"))

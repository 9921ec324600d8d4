"""The smallest change of each party's own columns, and what its messages show."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmq.boosting.model.changes import ChangeRules, TargetScore, offered_changes
from fedmq.boosting.model.served_forest import ServedForest
from fedmq.boosting.model.tree import LookupTable
from fedmq.computation import Given
from fedmq.errors import DataError
from fedmq.messages.array import Array
from fedmq.messages.inference import ChangeChosen, ChangeTold, InferenceAccept
from fedmq.protocol.inference.active import ExplainedInference
from fedmq.protocol.inference.passive import PassiveInference, PassiveRows
from fedmq.protocol.inference.sought_changes import PersonChanges, WantedChanges
from fedmq.protocol.machine import Machine
from tests.protocol.federation import ACTIVE, Federation, names, ran, small
from tests.simulator import Link

IDS = tuple(f"customer {row}" for row in range(80))


def changing(
    federation: Federation,
    shares: Mapping[str, Any],
    row: int,
    target: TargetScore,
    rules: Mapping[str, ChangeRules | None] | None = None,
) -> dict[str, Machine]:
    """Machines that look for changes of ``row``; who has no rules of its own may change all."""
    given = {party: ChangeRules() for party in federation.columns} | dict(rules or {})
    own = given[ACTIVE]
    assert own is not None
    values = federation.columns[ACTIVE][row : row + 1]
    active = ExplainedInference(
        shares[ACTIVE], values, IDS[row : row + 1], wanted=WantedChanges(target, own)
    )
    machines: dict[str, Machine] = {ACTIVE: active}
    row_of = {name: place for place, name in enumerate(IDS)}
    for peer in active.peers:
        rows = PassiveRows(shares[peer], federation.columns[peer], row_of)
        machines[peer] = PassiveInference(
            ACTIVE, Given(rows), changes=lambda peer=peer: given[peer]
        )
    return machines


def scored(shares: Mapping[str, Any], rows: Mapping[str, NDArray[np.float32]]) -> float:
    """The score of one person, of whom all parties' ``rows`` (features,) are known."""
    served = ServedForest.of(shares[ACTIVE])
    bitmaps = {}
    for owner, party in served.asked.items():
        table = shares[party].lookup_table
        records = np.arange(len(table))
        left = table.directions(rows[party][np.newaxis], np.zeros_like(records), records)
        bitmaps[owner] = left[np.newaxis]
    left = served.directions(rows[ACTIVE][np.newaxis], bitmaps)
    return float(served.scores(served.leaves(left))[1][0])


def cells(
    table: LookupTable, row: NDArray[np.float32]
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Each change of one column to another cell, with the thresholds of nodes that it passes."""
    for feature in range(len(row)):
        cuts = np.sort(table.threshold[table.feature == feature])
        for cut in np.unique(cuts):
            for value in (cut, np.nextafter(cut, np.float32(np.inf))):
                if np.isnan(row[feature]):
                    continue
                changed = row.copy()
                changed[feature] = value
                passed = int(((cuts >= row[feature]) != (cuts >= value)).sum())
                if passed:
                    yield passed, changed


def taken(row: NDArray[np.float32], party: str, changes: Any) -> NDArray[np.float32]:
    """``row`` after the ``changes`` that were told in words."""
    changed = row.copy()
    for column, words in changes:
        feature = names(party, len(row)).index(column)
        more, number = words.startswith("more than "), np.float32(words.split()[-1])
        changed[feature] = np.nextafter(number, np.float32(np.inf)) if more else number
    return changed


def test_a_told_change_leads_to_the_told_score_and_no_smaller_one_of_a_column_does() -> None:
    federation = small(num_boost_round=4, max_depth=4)
    shares = federation.train().results
    told = 0
    for row in range(0, 80, 7):
        rows = {party: columns[row] for party, columns in federation.columns.items()}
        now = scored(shares, rows)
        target = TargetScore(now + 0.05 if row % 2 else now - 0.05, bool(row % 2))
        link = Link(drop=0.1 * (row % 3), repeat=0.3, delay=1.0)
        found = ran(changing(federation, shares, row, target), seed=row, link=link).results[ACTIVE]
        assert isinstance(found, PersonChanges)
        assert found.score == pytest.approx(now) and not found.reached
        assert [party.party for party in found.parties] == list(federation.columns)
        for party in found.parties:
            own = rows[party.party]
            table = shares[party.party].lookup_table
            enough = [
                passed
                for passed, changed in cells(table, own)
                if target.reached(np.float32([scored(shares, {**rows, party.party: changed})]))[0]
            ]
            if not party.changes:
                assert not enough and party.score is None
                continue
            told += 1
            after = taken(own, party.party, party.changes)
            score = scored(shares, {**rows, party.party: after})
            assert score == party.score
            assert target.reached(np.float32([score]))[0]
            if enough:
                assert len(party.changes) == 1
                passed = [
                    passed
                    for passed, changed in cells(table, own)
                    if np.array_equal(changed, after, equal_nan=True)
                ]
                assert passed == [min(enough)]
    assert told > 10


def test_a_reached_score_asks_nobody_what_would_change_it() -> None:
    federation = small()
    shares = federation.train().results
    sent: list[Any] = []
    machines = changing(federation, shares, 0, TargetScore(0.0, True))
    found = ran(machines, tap=lambda envelope: sent.append(envelope.body)).results[ACTIVE]
    assert found.reached and not any(party.changes for party in found.parties)
    assert not any(isinstance(body, ChangeChosen | ChangeTold) for body in sent)


def test_who_is_not_allowed_to_tell_offers_nothing() -> None:
    federation = small()
    shares = federation.train().results
    sent: list[Any] = []
    machines = changing(federation, shares, 0, TargetScore(1.0, True), {"telco": None})
    found = ran(machines, tap=sent.append).results[ACTIVE]
    assert [(party.party, party.tells) for party in found.parties] == [
        (ACTIVE, True), ("telco", False), ("shop", True),
    ]  # fmt: skip
    offers = {
        envelope.header.sender: envelope.body.offered
        for envelope in sent
        if isinstance(envelope.body, InferenceAccept)
    }
    assert offers["telco"] is None and offers["shop"] is not None


def ranked(
    table: LookupTable, values: NDArray[np.float32]
) -> tuple[LookupTable, NDArray[np.float32]]:
    """The same, with the rank of each number of a column in place of it."""
    threshold, columns = table.threshold.copy(), values.copy()
    for feature in range(values.shape[1]):
        own = table.feature == feature
        known = ~np.isnan(values[:, feature])
        all_of_it = np.unique(np.append(values[known, feature], threshold[own]))
        columns[known, feature] = np.searchsorted(all_of_it, values[known, feature])
        threshold[own] = np.searchsorted(all_of_it, threshold[own])
    return table.model_copy(update={"threshold": threshold}), columns


def test_an_offer_tells_the_order_of_thresholds_and_neither_values_nor_names() -> None:
    """What is offered stays the same where only the ranks of numbers do, and under other names."""
    federation = small(num_boost_round=4, max_depth=4)
    share = federation.train().results["telco"]
    values = federation.columns["telco"]
    table, ranks = ranked(share.lookup_table, values)
    renamed = tuple(reversed([f"column {place}" for place in range(len(table.feature_names))]))
    table = table.model_copy(update={"feature_names": renamed})
    records = len(table)
    for row in range(20):
        plain = offered_changes(share.lookup_table, records, values[row], ChangeRules())
        other = offered_changes(table, records, ranks[row], ChangeRules())
        np.testing.assert_array_equal(plain.alternatives.left, other.alternatives.left)
        np.testing.assert_array_equal(plain.alternatives.column, other.alternatives.column)
        assert len(plain.told) == len(plain.alternatives.left)


def test_an_offer_shows_which_records_share_a_column_and_in_which_order() -> None:
    """The other half of the bound: this much is shown, and the caveats name it."""
    federation = small(num_boost_round=4, max_depth=4)
    table = federation.train().results["telco"].lookup_table
    row = federation.columns["telco"][3]
    records = np.arange(len(table))
    offered = offered_changes(table, len(table), row, ChangeRules()).alternatives
    now = table.directions(row[np.newaxis], np.zeros_like(records), records)
    for column in np.unique(offered.column):
        flips = offered.left[offered.column == column] != now
        (feature,) = {int(table.feature[record]) for record in np.flatnonzero(flips.any(axis=0))}
        assert flips.any(axis=0).sum() == (table.feature == feature).sum()
        for one, other in itertools.pairwise(flips[np.argsort(flips.sum(axis=1))]):
            assert (one & other).sum() in (0, one.sum(), other.sum())  # up, down, or nested


def _table(features: tuple[str, ...], *records: tuple[int, float]) -> LookupTable:
    return LookupTable.empty(features).appended(
        [feature for feature, _ in records], [cut for _, cut in records], [False] * len(records)
    )


TABLE = _table(
    ("age", "income", "plan=basic", "plan=gold", "joined.days"),
    (0, 30.0), (1, 1000.0), (1, 2000.0), (1, 3000.0), (3, 0.5), (4, 5.0),
)  # fmt: skip
ROW = np.array([25, 1500, 1, 0, 3], np.float32)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (
            ChangeRules(),
            {
                ("age", "more than 30.0"), ("income", "at most 1000.0"),
                ("income", "more than 2000.0"), ("income", "more than 3000.0"), ("plan", "gold"),
                ("joined.days", "more than 5.0"),
            },
        ),
        (
            ChangeRules(
                fixed=frozenset({"age", "joined"}),
                increase=frozenset({"income"}),
                texts={"plan": "the contract"},
            ),
            {
                ("income", "more than 2000.0"), ("income", "more than 3000.0"),
                ("the contract", "gold"),
            },
        ),
        (
            ChangeRules(fixed=frozenset({"age", "joined", "plan"}), decrease=frozenset({"income"})),
            {("income", "at most 1000.0")},
        ),
    ],
    ids=["anything", "fixed and rising", "falling"],
)  # fmt: skip
def test_owners_say_what_can_change(rules: ChangeRules, expected: set[tuple[str, str]]) -> None:
    offered = offered_changes(TABLE, len(TABLE), ROW, rules)
    assert set(offered.told) == expected


def test_a_missing_value_is_not_changed() -> None:
    row = ROW.copy()
    row[1] = np.nan
    told = offered_changes(TABLE, len(TABLE), row, ChangeRules()).told
    assert "income" not in {column for column, _ in told}


def test_a_category_has_no_order() -> None:
    with pytest.raises(DataError, match=r"data\.changes\.increase: column 'plan' is a category"):
        offered_changes(TABLE, len(TABLE), ROW, ChangeRules(increase=frozenset({"plan"})))


def _another(chosen: ChangeChosen) -> ChangeChosen:
    return ChangeChosen(numbers=Array.of(chosen.numbers.numpy() + np.uint32(100_000)))


def _too_many(chosen: ChangeChosen) -> ChangeChosen:
    return ChangeChosen(numbers=Array.of(np.zeros(4, np.uint32)))


def _too_few_words(told: ChangeTold) -> ChangeTold:
    return told.model_copy(update={"told_columns": ()})


def _cut(accept: InferenceAccept) -> InferenceAccept:
    assert accept.offered is not None
    column = Array.of(accept.offered.column.numpy()[:-1])
    return accept.model_copy(
        update={"offered": accept.offered.model_copy(update={"column": column})}
    )


@pytest.mark.parametrize("forge", [_another, _too_many, _too_few_words, _cut])
def test_a_breach_of_the_protocol_ends_the_session_on_both_sides(
    forge: Callable[[Any], Any],
) -> None:
    federation = small(counts=(2, 2), num_boost_round=4)
    shares = federation.train().results
    (of,) = (kind for name, kind in forge.__annotations__.items() if name != "return")
    rows = {party: columns[0] for party, columns in federation.columns.items()}
    target = TargetScore(scored(shares, rows) + 0.01, True)
    simulation = ran(
        changing(federation, shares, 0, target),
        rewrite=lambda sent: forge(sent.body) if type(sent.body).__name__ == of else sent.body,
    )
    assert set(simulation.errors) == {ACTIVE, "telco"}
    assert all("broke the protocol" in str(error) for error in simulation.errors.values())


def test_one_choice_a_session_is_told() -> None:
    federation = small(counts=(2, 2), num_boost_round=4)
    shares = federation.train().results
    rows = {party: columns[0] for party, columns in federation.columns.items()}
    machine = changing(federation, shares, 0, TargetScore(scored(shares, rows) + 0.01, True))
    simulation = ran(
        machine,
        rewrite=lambda sent: (
            ChangeChosen(numbers=Array.of(np.zeros(1, np.uint32)))
            if sent.body.kind == "inference finished"
            else sent.body
        ),
    )
    assert "of which none is left to tell" in str(simulation.errors["telco"])

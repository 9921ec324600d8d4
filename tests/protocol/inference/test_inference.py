"""Scoring through the machines: the margins of the joined tables, whatever befalls the messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmq.computation import Given
from fedmq.errors import Aborted, DataError, PeerSilent, Refused
from fedmq.messages.array import Bitmap
from fedmq.messages.body import SessionRefuse
from fedmq.messages.inference import (
    HopReply,
    InferenceAccept,
    InferenceHop,
    InferenceOpen,
    SampleIds,
)
from fedmq.protocol.inference.active import ActiveInference, ExplainedInference
from fedmq.protocol.inference.passive import PassiveInference, PassiveRows
from tests.boosting.pooled import joint_margins
from tests.how_often import seldom
from tests.protocol.failing_computation import FailingComputation
from tests.protocol.federation import ACTIVE, Federation, ran, small
from tests.simulator import Link


def trained(federation: Federation) -> dict[str, Any]:
    return federation.train().results


def expected(federation: Federation, shares: dict[str, Any]) -> np.ndarray:
    tables = [shares[party].lookup_table for party in federation.columns]
    return joint_margins(shares[ACTIVE], tables, list(federation.columns.values()))


@pytest.mark.parametrize("counts", [(2, 2, 1), *seldom((2, 3), (0, 2, 2), (4,))], ids=str)
@pytest.mark.parametrize("ids", [False, True], ids=["by position", "by id"])
def test_no_schedule_changes_a_bit_of_the_scores(counts: tuple[int, ...], ids: bool) -> None:
    federation = small(counts=counts, num_boost_round=3, max_depth=4)
    shares = trained(federation)
    margins = expected(federation, shares)
    assert len(np.unique(margins)) > 3
    listed = [f"customer {row}" for row in range(len(federation.label))] if ids else None
    for seed in range(25):
        link = Link(drop=0.1 * (seed % 4), repeat=0.3, delay=2.0 * (seed % 2))
        simulation = ran(federation.scoring(shares, listed), seed=seed, link=link)
        assert not simulation.errors
        np.testing.assert_array_equal(simulation.results[ACTIVE].margins, margins)


def test_ids_travel_in_pieces_and_come_together_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedmq.protocol.inference.active._IDS_PER_PIECE", 7)
    federation = small()
    shares = trained(federation)
    listed = [f"customer {row}" for row in range(80)]
    pieces: list[Any] = []
    simulation = ran(
        federation.scoring(shares, listed),
        link=Link(0.2, 0.2, 1.0),
        tap=lambda envelope: pieces.append(envelope.body),
    )
    np.testing.assert_array_equal(simulation.results[ACTIVE].margins, expected(federation, shares))
    assert len({body.start for body in pieces if isinstance(body, SampleIds)}) == 12


def test_the_longest_ids_fit_their_messages() -> None:
    federation = small(rows=1200)
    listed = [f"{row:04}" + "\U0001f4a7" * 252 for row in range(1200)]
    simulation = ran(federation.scoring(trained(federation), listed))
    assert not simulation.errors


def test_early_stopping_ends_the_walk_at_the_best_tree() -> None:
    federation = small(num_boost_round=30, early_stopping_rounds=2)
    shares = trained(federation)
    assert len(shares[ACTIVE].used_trees) < len(shares[ACTIVE].trees)
    simulation = ran(federation.scoring(shares))
    np.testing.assert_array_equal(simulation.results[ACTIVE].margins, expected(federation, shares))


def test_parties_without_a_split_are_not_asked() -> None:
    federation = small(counts=(3, 0, 2))
    simulation = ran(federation.scoring(trained(federation)))
    assert set(simulation.sessions) == {ACTIVE, "shop"}
    assert not simulation.errors


def test_a_hop_tells_rows_and_records_and_its_answer_directions_alone() -> None:
    federation = small()
    bodies: list[Any] = []
    ran(federation.scoring(trained(federation)), tap=lambda envelope: bodies.append(envelope.body))
    hops = [body for body in bodies if isinstance(body, InferenceHop)]
    replies = [body for body in bodies if isinstance(body, HopReply)]
    assert len(hops) == len(replies) > 2
    assert sorted(hop.rows.shape[0] for hop in hops) == sorted(
        reply.left.count for reply in replies
    )


@pytest.mark.parametrize("dead", [ACTIVE, "telco", "shop"])
def test_a_party_that_dies_is_named_by_those_it_leaves(dead: str) -> None:
    federation = small()
    shares = trained(federation)
    end = ran(federation.scoring(shares), link=Link(delay=1.0)).ended
    random = np.random.default_rng(3)
    broken_off = 0
    for seed in range(15):
        deaths = {dead: float(random.uniform(0, end))}
        simulation = ran(
            federation.scoring(shares), seed=seed, link=Link(0.1, 0.1, 1.0), deaths=deaths
        )
        for party, error in simulation.errors.items():
            broken_off += 1
            assert isinstance(error, PeerSilent if ACTIVE in (party, dead) else Aborted)
            assert dead in str(error)
    assert broken_off >= 15


# Refusals


def test_ids_that_a_party_does_not_know_are_refused_by_name() -> None:
    federation = small()
    shares = trained(federation)
    listed = [f"customer {row}" for row in range(80)]
    machines = federation.scoring(shares, listed)
    strangers = federation.scoring(shares, ["stranger", *listed[1:]])
    simulation = ran({**machines, ACTIVE: strangers[ACTIVE]})
    refused = simulation.errors[ACTIVE]
    assert isinstance(refused, Refused)
    assert "this party does not know 1 of the ids, for example 'stranger'" in str(refused)
    assert set(simulation.errors) == {ACTIVE, "telco", "shop"}


def test_rows_that_a_party_does_not_know_have_no_score_where_that_is_asked() -> None:
    federation = small()
    shares = trained(federation)
    margins = expected(federation, shares)
    listed = [f"customer {row}" for row in range(80)]
    asked = ["stranger", *listed[1:40], "other", *listed[41:]]
    unknown = np.isin(np.arange(80), [0, 40])
    for seed in range(10):
        machines = federation.scoring(shares, listed)
        machines[ACTIVE] = ActiveInference(
            shares[ACTIVE], federation.columns[ACTIVE], asked, partial=True
        )
        simulation = ran(machines, seed=seed, link=Link(drop=0.1, repeat=0.2))
        assert not simulation.errors
        scores = simulation.results[ACTIVE]
        np.testing.assert_array_equal(scores.margins, np.where(unknown, np.nan, margins))
        assert np.isnan(scores.predictions[unknown]).all()
        assert set(scores.unknown) == {"telco", "shop"}
        for rows in scores.unknown.values():
            np.testing.assert_array_equal(rows, unknown)


@pytest.mark.parametrize("kind", [ActiveInference, ExplainedInference])
@pytest.mark.parametrize("need_not_know", [("telco",), ("telco", "shop"), ("shop",)])
def test_rows_that_a_party_need_not_know_go_where_missing_values_go(
    kind: type[ActiveInference], need_not_know: tuple[str, ...]
) -> None:
    federation = small()
    shares = trained(federation)
    listed = [f"customer {row}" for row in range(80)]
    asked = ["stranger", *listed[1:40], "other", *listed[41:]]
    unknown = np.isin(np.arange(80), [0, 40])
    gapped = {party: X.copy() for party, X in federation.columns.items()}
    gapped["telco"][unknown] = np.nan
    margins = expected(replace(federation, columns=gapped), shares)
    machines = federation.scoring(shares, listed)
    everybody = {name: row for row, name in enumerate(asked)}
    shop = PassiveRows(shares["shop"], federation.columns["shop"], everybody)
    machines["shop"] = PassiveInference(ACTIVE, Given(shop))
    machines[ACTIVE] = kind(
        shares[ACTIVE],
        federation.columns[ACTIVE],
        asked,
        partial=True,
        need_not_know=need_not_know,
    )
    simulation = ran(machines)
    assert not simulation.errors
    scores = simulation.results[ACTIVE]
    assert set(scores.unknown) == {"telco"}
    np.testing.assert_array_equal(scores.unknown["telco"], unknown)
    if "telco" in need_not_know:
        np.testing.assert_array_equal(scores.margins, margins)
    else:
        np.testing.assert_array_equal(scores.margins, np.where(unknown, np.nan, margins))


def test_another_number_of_rows_is_refused() -> None:
    federation = small(counts=(2, 2))
    shares = trained(federation)
    shorter = replace(
        federation, columns={party: X[:-1] for party, X in federation.columns.items()}
    )
    machines = {**federation.scoring(shares), ACTIVE: shorter.scoring(shares)[ACTIVE]}
    simulation = ran(machines)
    assert str(simulation.errors[ACTIVE]).endswith("this party has 80 rows, not 79")


def test_a_share_that_cannot_be_loaded_is_a_refusal_and_its_reason_stays_at_home() -> None:
    federation = small()
    shares = trained(federation)
    sorry = federation.having(
        loads={"telco": FailingComputation(DataError("telco.csv: row 7 is no number"))}
    )
    simulation = ran(sorry.scoring(shares))
    assert "row 7" in str(simulation.errors["telco"])
    assert isinstance(simulation.errors[ACTIVE], Refused)
    assert "telco" in str(simulation.errors[ACTIVE])
    assert "row 7" not in str(simulation.errors[ACTIVE])
    assert "telco" in str(simulation.errors["shop"])


# Breaches


def _one_more(reply: HopReply) -> HopReply:
    return reply.model_copy(update={"hop": reply.hop + 1000})


def _too_short(reply: HopReply) -> HopReply:
    shorter = reply.left.numpy()[:-1]
    return HopReply(hop=reply.hop, left=type(reply.left).of(shorter))


def _beyond(hop: InferenceHop) -> InferenceHop:
    field = hop.rows.numpy() + np.uint32(100_000)
    return hop.model_copy(update={"rows": type(hop.rows).of(field)})


def _unknown_record(hop: InferenceHop) -> InferenceHop:
    field = hop.records.numpy() + np.uint32(100_000)
    return hop.model_copy(update={"records": type(hop.records).of(field)})


def _listed_twice(opening: InferenceOpen) -> SampleIds:
    return SampleIds(start=0, ids=("nobody",))


def _refusal(reply: HopReply) -> SessionRefuse:
    return SessionRefuse(reason="too late")


def _all_unknown(_: InferenceAccept) -> InferenceAccept:
    return InferenceAccept(unknown_rows=Bitmap.of(np.ones(80, np.bool_)))


@pytest.mark.parametrize(
    "forge",
    [_one_more, _too_short, _beyond, _unknown_record, _listed_twice, _refusal, _all_unknown],
)
def test_a_breach_of_the_protocol_ends_the_session_on_both_sides(forge: Any) -> None:
    federation = small(counts=(2, 2))
    shares = trained(federation)
    (of,) = (kind for name, kind in forge.__annotations__.items() if name != "return")
    simulation = ran(
        federation.scoring(shares),
        rewrite=lambda sent: forge(sent.body) if type(sent.body).__name__ == of else sent.body,
    )
    assert set(simulation.errors) == {ACTIVE, "telco"}
    reasons = [str(error) for error in simulation.errors.values()]
    assert all("broke the protocol" in reason for reason in reasons)

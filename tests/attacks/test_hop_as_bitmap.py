"""An active party asks in mode hop for what only mode bitmap gives: the ways at all records."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmq.boosting.model.served_forest import NONE, Chains, RecordPlaces, is_below
from fedmq.errors import RateLimited
from fedmq.messages.array import Array
from fedmq.messages.body import Body
from fedmq.messages.envelope import Header
from fedmq.messages.online import OnlineExits, OnlineHop, OnlineRefusal
from fedmq.party.configuration.online import OnlineSection
from fedmq.party.online.answering import Answering, BatchLedger, HostedShare
from fedmq.party.online.rows import Rows, RowsInMemory
from fedmq.protocol.online.passive import AnsweringShare
from tests.party.online.serving_harness import ServingHarness, hosted
from tests.protocol.online.test_online import World, usual_world


@pytest.fixture(scope="module")
def world() -> World:
    return usual_world()


class Liar:
    """Asks telco in mode hop, as it likes, having said at deployment that nothing follows."""

    def __init__(self, world: World, places: bool = True, **limits: Any) -> None:
        honest = world.shares["telco"]
        none = np.full(len(honest.chains), NONE, np.int32)
        share = AnsweringShare(
            honest.share, Chains(none, none.copy()), honest.values, honest.row_of
        )
        features = share.share.lookup_table.feature_names
        served = hosted(share, RowsInMemory(Rows(features, share.values, share.row_of)))
        if not places:
            served = HostedShare(served.share, served.chains, served.rows)
        self.share = share.share
        self.telco = Answering(OnlineSection.model_validate({"modes": ["hop"], **limits}), None)
        self.telco.shares[share.share.model_id] = served

    async def ask(
        self, records: list[int], batch: int = 1, hop: int = 1, ids: tuple[str, ...] = ("P1",)
    ) -> Body | None:
        rows = np.repeat(np.arange(len(ids), dtype=np.uint32), len(records))
        body = OnlineHop(
            batch=batch,
            hop=hop,
            model=self.share.model_id,
            ids=ids,
            rows=Array.of(rows),
            records=Array.of(np.tile(np.array(records, np.uint32), len(ids))),
            budget=1.0,
        )
        header = Header(
            id="x", federation="demo", session="s", attempt=1, sender="active",
            recipient="telco", sequence=0, acknowledged=0, kind=body.kind,
        )  # fmt: skip
        return await self.telco.answer(header, body)

    @property
    def records(self) -> list[int]:
        return list(range(len(self.share.lookup_table)))


def refused(answer: Body | None) -> bool:
    return isinstance(answer, OnlineRefusal) and answer.cause == "records"


async def test_all_records_in_one_question_are_refused_and_counted(world: World) -> None:
    liar = Liar(world)
    answer = await liar.ask(liar.records, ids=tuple(f"P{row}" for row in range(10)))
    assert refused(answer)
    assert liar.telco.rate_limits.turned_away == 1


async def test_a_record_that_the_model_lacks_is_refused_before_anything_is_as_long(
    world: World,
) -> None:
    for places in (True, False):
        liar = Liar(world, places)
        tracemalloc.start()
        answer = await liar.ask([2**32 - 1])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert isinstance(answer, OnlineRefusal)
        assert "has" in answer.reason
        assert peak < 2**20


async def test_record_by_record_one_way_a_tree_is_answered_and_no_more(world: World) -> None:
    liar = Liar(world, records_per_id=10_000)
    answered = []
    for hop, record in enumerate(liar.records):
        answer = await liar.ask([record], hop=hop)
        assert refused(answer) or isinstance(answer, OnlineExits)
        if isinstance(answer, OnlineExits):
            answered.append(record)
    assert len(answered) < len(liar.records)
    levels = [
        (liar.share.places[record][0], liar.share.places[record][1].bit_length())
        for record in answered
    ]
    assert len(set(levels)) == len(levels)
    assert len(answered) <= RecordPlaces.of(liar.share.places).longest_ways()


async def test_many_batches_about_one_person_are_bounded_by_the_hour(world: World) -> None:
    liar = Liar(world)
    most = 2 * RecordPlaces.of(liar.share.places).longest_ways()
    # A model of few records may be met whole by two ways; the bound is what is tested.
    answered = set()
    for batch, record in enumerate(liar.records, start=1):
        if isinstance(await liar.ask([record], batch=batch), OnlineExits):
            answered.add(record)
    assert len(answered) == min(most, len(liar.records))


async def test_a_number_is_answered_once_and_a_repetition_as_before(world: World) -> None:
    liar = Liar(world)
    first = await liar.ask([0])
    assert isinstance(first, OnlineExits)
    assert await liar.ask([0]) == first
    assert refused(await liar.ask([len(liar.records) - 1]))
    assert refused(await liar.ask([0], ids=("P2",)))
    assert liar.telco.rate_limits.turned_away == 2


async def test_a_share_without_places_answers_as_before_within_its_limits(world: World) -> None:
    liar = Liar(world, places=False, records_per_id=3)
    assert isinstance(await liar.ask([0, 1, 2]), OnlineExits)
    assert refused(await liar.ask([3], batch=2))


async def test_a_person_who_is_asked_for_twice_with_other_features_has_both_scores(
    world: World,
) -> None:
    harness = ServingHarness(world)
    own = world.model.share.lookup_table.feature_names
    features = [
        {name: float(value) for name, value in zip(own, row, strict=True)}
        for row in world.columns["active"][[1, 2, 3]]
    ]
    scored = await harness.margins(["P1", "P1", "P1"], features=features)
    table = np.hstack(list(world.columns.values()))[[1, 1, 1]].copy()
    table[:, :3] = world.columns["active"][[1, 2, 3]]
    np.testing.assert_array_equal(scored, world.xgboost_margins(table))
    assert harness.scorer.batcher.counts.batches == 3
    await harness.scorer.close()


def question(batch: int, ids: tuple[str, ...]) -> OnlineHop:
    records = np.zeros(len(ids), np.uint32)
    return OnlineHop(
        batch=batch, hop=1, model="m", ids=ids, rows=Array.of(np.arange(len(ids), dtype=np.uint32)),
        records=Array.of(records), budget=1.0,
    )  # fmt: skip


def enter(ledger: BatchLedger, asked: OnlineHop, places: RecordPlaces) -> None:
    pairs = asked.rows.numpy(), asked.records.numpy()
    ledger.enter("bank", "s", asked, pairs, places)


def test_memory_is_flat_and_what_is_forgotten_is_answered_no_more() -> None:
    places = RecordPlaces.of([(tree, 1) for tree in range(100)])
    ledger = BatchLedger(most_bytes=1_000_000)
    for batch in range(300):
        enter(ledger, question(batch, tuple(f"P{row}" for row in range(50))), places)
    assert ledger._bytes <= 1_000_000
    assert len(ledger._batches) < 30
    with pytest.raises(RateLimited, match="batch 3 is over"):
        enter(ledger, question(3, ("P1",)), places)


def test_batches_that_nobody_asks_about_any_more_are_forgotten_sooner() -> None:
    places = RecordPlaces.of([(tree, 1) for tree in range(100)])
    now = 0.0
    ledger = BatchLedger(idle_bytes=300_000, clock=lambda: now)
    for batch in range(8):
        enter(ledger, question(batch, tuple(f"P{row}" for row in range(50))), places)
    assert len(ledger._batches) == 8  # all of them are young
    now = 59.0
    enter(ledger, question(0, tuple(f"P{row}" for row in range(50))), places)
    now = 100.0
    enter(ledger, question(8, ("P1",)), places)
    assert next(iter(ledger._batches))[1] == 0  # it was asked about after the others
    now = 200.0
    enter(ledger, question(9, ("P1",)), places)
    assert ledger._bytes <= 300_000
    with pytest.raises(RateLimited, match="batch 1 is over"):
        enter(ledger, question(1, ("P1",)), places)


def test_places_tell_chains_that_are_made_up(world: World) -> None:
    share = world.shares["telco"]
    places = RecordPlaces.of(share.share.places)
    assert places.fit(share.chains)
    made_up = np.full(len(places.tree), NONE, np.int32)
    made_up[0] = len(made_up) - 1
    assert not places.fit(Chains(made_up, share.chains.right))


def test_what_lies_below_a_node() -> None:
    def below(node: int, top: int) -> bool:
        found: NDArray[np.bool_] = is_below(np.array([node]), np.array([top]))
        return bool(found[0])

    assert below(1, 1) and below(13, 3) and below(12, 6) and below(2**50 + 5, 2**40)
    assert not below(1, 2) and not below(13, 2) and not below(6, 12) and not below(7, 6)

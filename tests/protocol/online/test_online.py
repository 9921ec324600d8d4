"""Scores that somebody waits for: exact over a bad link, honest when a party is away."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import xgboost
from numpy.typing import NDArray

from fedmq import SimulatedModel, TrainParams, simulate
from fedmq.boosting.model.served_forest import ServedForest
from fedmq.errors import PeerSilent, ProtocolError
from fedmq.messages.array import Array
from fedmq.messages.online import OnlineExits, OnlineHop, OnlineRows
from fedmq.protocol.events import Received, Start
from fedmq.protocol.online.active import OnlineBatch, OnlineScores
from fedmq.protocol.online.options import AskedRows, Degrade, Mode, Timeouts
from fedmq.protocol.online.passive import AnsweringShare
from tests.how_often import each_seed, seldom
from tests.protocol.online.online_schedule import OnlineSchedule
from tests.simulator import Link

BAD = Link(drop=0.2, repeat=0.2, delay=0.05)
MODES: tuple[Mode, ...] = ("hop", "bitmap")


class World:
    """A model of three parties, its rows (a tenth of the values missing), and XGBoost's margins."""

    def __init__(self, rows: int = 600, trees: int = 8, depth: int = 4, **more: Any) -> None:
        random = np.random.default_rng(5)
        table = random.normal(size=(rows, 9)).astype(np.float32)
        label = (table[:, 0] + table[:, 3] * table[:, 6] + random.normal(size=rows) > 0).astype(int)
        table[random.random(table.shape) < 0.1] = np.nan
        self.columns = {
            "active": table[:, :3],
            "telco": table[:, 3:6],
            "retail": table[:, 6:],
        }
        others = {"telco": self.columns["telco"], "retail": self.columns["retail"]}
        if "num_class" in more:
            label += np.nan_to_num(table[:, 1]) > 0.7
        self._train(
            label, others, TrainParams(num_boost_round=trees, max_depth=depth, max_bin=16, **more)
        )
        self.margins = self.xgboost_margins(table)

    @classmethod
    def of(
        cls, table: NDArray[np.float32], label: NDArray[Any], parties: int, params: TrainParams
    ) -> World:
        """A world of the columns of ``table``, dealt out to so many ``parties``."""
        made = cls.__new__(cls)
        names = ("active", "telco", "retail", "clinic")[:parties]
        parts = np.array_split(table, parties, axis=1)
        made.columns = dict(zip(names, parts, strict=True))
        others = {name: made.columns[name] for name in names[1:]}
        made._train(label, others, params)
        made.margins = made.xgboost_margins(table)
        return made

    def _train(
        self,
        label: NDArray[Any],
        others: dict[str, NDArray[np.float32]],
        params: TrainParams,
    ) -> None:
        self.model: SimulatedModel = simulate(
            active=self.columns["active"],
            label=label,
            passive=others,
            params=params,
            engine="plain",
        )
        self.served = ServedForest.of(self.model.share)
        self.ids = [f"P{row}" for row in range(len(label))]
        self.shares = {
            party: self.answering(owner, party)
            for owner, party in enumerate(self.model.share.parties)
            if owner
        }

    def xgboost_margins(self, table: NDArray[np.float32]) -> NDArray[np.float32]:
        booster = self.model.to_xgboost()
        matrix = xgboost.DMatrix(table, feature_names=booster.feature_names)
        return booster.predict(matrix, output_margin=True)

    def answering(self, owner: int, party: str) -> AnsweringShare:
        columns = self.columns[party]
        values = np.vstack([columns, np.full((1, columns.shape[1]), np.nan, np.float32)])
        return AnsweringShare(
            self.model.passive_shares[party],
            self.served.chains(owner),
            values,
            {name: row for row, name in enumerate(self.ids)},
        )

    def batch(
        self,
        rows: NDArray[np.int64],
        requests: list[AskedRows] | None = None,
        mode: Mode = "hop",
        degrade: Degrade = "fail",
        timeouts: Timeouts | None = None,
        away: tuple[str, ...] = (),
        number: int = 0,
        ids: list[str] | None = None,
    ) -> OnlineBatch:
        return OnlineBatch(
            number,
            self.served,
            ids or [self.ids[row] for row in rows],
            self.columns["active"][rows],
            requests or [AskedRows(0, len(rows), 60.0)],
            mode,
            degrade,
            timeouts or Timeouts(),
            {party: f"{party} is away" for party in away},
        )


@cache
def usual_world() -> World:
    """The one that most tests take: to train it takes a second, and nobody changes it."""
    return World()


@pytest.fixture(scope="module")
def world() -> World:
    return usual_world()


@pytest.mark.parametrize("mode", MODES)
@each_seed(8, often=3)
def test_scores_are_xgboosts_over_a_link_that_loses_repeats_and_reorders(
    world: World, mode: Mode, seed: int
) -> None:
    random = np.random.default_rng(seed)
    parts = [np.sort(random.choice(600, size=40, replace=False)) for _ in range(4)]
    requests = [AskedRows(0, 1, 60.0), AskedRows(1, 25, 60.0), AskedRows(25, 40, 60.0)]
    batches = [world.batch(rows, requests, mode, number=part) for part, rows in enumerate(parts)]

    answers = OnlineSchedule(batches, world.shares, seed, BAD, slow_work=0.01).run()

    for number, rows in enumerate(parts):
        got = np.concatenate([answers[number, request].margins for request in range(3)])
        np.testing.assert_array_equal(got, world.margins[rows])
        assert not any(answers[number, request].degraded for request in range(3))


@pytest.fixture(scope="module")
def large_world() -> World:
    return World(rows=10_000, trees=50)


@pytest.mark.parametrize("mode", [MODES[0], *seldom(*MODES[1:])])
def test_ten_thousand_scores_at_once_are_xgboosts_whatever_happens_on_the_way(
    large_world: World, mode: Mode
) -> None:
    """The link is bad, and first one party is away for a while, then the other."""
    parts = np.split(np.random.default_rng(1).permutation(10_000), 40)
    batches = [large_world.batch(rows, mode=mode, number=at) for at, rows in enumerate(parts)]
    away = {"telco": (0.02, 0.5), "retail": (0.6, 1.2)}

    answers = OnlineSchedule(batches, large_world.shares, 7, BAD, away, slow_work=0.01).run()

    for number, rows in enumerate(parts):
        np.testing.assert_array_equal(answers[number, 0].margins, large_world.margins[rows])
        assert not answers[number, 0].degraded


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("party", ["telco", "retail"])
def test_a_party_that_is_restarted_goes_on_answering(world: World, mode: Mode, party: str) -> None:
    rows = np.arange(100)
    away = {party: (0.002, 0.7)}

    answers = OnlineSchedule([world.batch(rows, mode=mode)], world.shares, away=away).run()

    np.testing.assert_array_equal(answers[0, 0].margins, world.margins[rows])


@pytest.mark.parametrize("size", ["world", "large_world"])
def test_a_row_asks_as_often_as_its_way_enters_another_party(
    size: str, request: pytest.FixtureRequest
) -> None:
    world: World = request.getfixturevalue(size)
    batch = world.batch(np.arange(len(world.ids)))
    OnlineSchedule([batch], world.shares).run()

    assert batch.rounds == world.served.rounds
    owner_changes = _most_entries(world.served)
    assert batch.rounds <= owner_changes <= 4  # the depth


def _most_entries(served: ServedForest) -> int:
    """By walking every way of every tree."""
    most = 0
    stack = [(int(root), 0, 0) for root in served.forest.roots]
    while stack:
        node, before, entries = stack.pop()
        owner = int(served.forest.owner[node])
        entries += owner > 0 and owner != before
        most = max(most, entries)
        if owner >= 0:
            children = served.forest.left[node], served.forest.right[node]
            stack.extend((int(child), owner, entries) for child in children)
    return most


def test_bitmap_asks_every_party_once(world: World) -> None:
    schedule = OnlineSchedule([world.batch(np.arange(100), mode="bitmap")], world.shares)
    schedule.run()

    asked = [to for _, to, body in schedule.sent if isinstance(body, OnlineRows)]
    assert sorted(asked) == ["retail", "telco"]


def test_in_hop_mode_a_party_sees_only_records_that_a_row_really_enters(world: World) -> None:
    row = 17
    schedule = OnlineSchedule([world.batch(np.array([row]))], world.shares)
    schedule.run()
    forest, columns = world.served.forest, world.columns
    entered: dict[str, set[int]] = {"telco": set(), "retail": set()}
    for root in forest.roots:
        node, before = int(root), 0
        while (owner := int(forest.owner[node])) >= 0:
            party = world.model.share.parties[owner]
            if owner and owner != before:
                entered[party].add(int(forest.record[node]))
            tables = [world.model.share.lookup_table, *(
                world.model.passive_shares[party].lookup_table
                for party in world.model.share.parties[1:]
            )]  # fmt: skip
            record = forest.record[[node]]
            left = tables[owner].directions(columns[party], np.array([row]), record)[0]
            node, before = int(forest.left[node] if left else forest.right[node]), owner

    disclosed: dict[str, set[int]] = {"telco": set(), "retail": set()}
    for _, to, body in schedule.sent:
        if isinstance(body, OnlineHop):
            disclosed[to] |= set(body.records.numpy().tolist())
    assert disclosed == entered


@pytest.mark.parametrize("mode", MODES)
def test_an_id_that_a_party_does_not_know_counts_as_missing_there_and_is_named(
    world: World, mode: Mode
) -> None:
    shares = dict(world.shares)
    known = {name: row for name, row in shares["telco"].row_of.items() if name != "P3"}
    shares["telco"] = AnsweringShare(
        shares["telco"].share, shares["telco"].chains, shares["telco"].values, known
    )

    scores = OnlineSchedule([world.batch(np.arange(6), mode=mode)], shares, link=BAD).run()[0, 0]

    table = np.hstack(list(world.columns.values()))[:6].copy()
    table[3, 3:6] = np.nan
    np.testing.assert_array_equal(scores.margins, world.xgboost_margins(table))
    assert scores.unknown["telco"].tolist() == [False, False, False, True, False, False]
    assert not scores.degraded


def _without(world: World, parties: set[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Margins where the splits of ``parties`` go where most of the training weight went."""
    share, forest = world.model.share, world.served.forest
    tables = [share.lookup_table, *(
        world.model.passive_shares[party].lookup_table for party in share.parties[1:]
    )]  # fmt: skip
    cover = np.concatenate([tree.cover for tree in share.used_trees])
    margins = []
    for row in rows:
        leaves = []
        for root in forest.roots:
            node = int(root)
            while (owner := int(forest.owner[node])) >= 0:
                party = share.parties[owner]
                if party in parties:
                    left = cover[forest.left[node]] >= cover[forest.right[node]]
                else:
                    left = tables[owner].directions(
                        world.columns[party], np.array([row]), forest.record[[node]]
                    )[0]
                node = int(forest.left[node] if left else forest.right[node])
            leaves.append(node)
        margins.append(leaves)
    return world.served.scores(np.array(margins, np.int32))[0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("known", [False, True])
def test_partial_answers_guess_for_the_party_that_is_away_and_say_so(
    world: World, mode: Mode, known: bool
) -> None:
    rows = np.arange(30)
    batch = world.batch(
        rows, [AskedRows(0, 10, 1.0), AskedRows(10, 30, 1.0)], mode, "partial",
        Timeouts(away=0.3), away=("telco",) if known else (),
    )  # fmt: skip
    schedule = OnlineSchedule([batch], world.shares, away={"telco": (0.0, 99.0)})

    answers = schedule.run()

    got = np.concatenate([answers[0, request].margins for request in range(2)])
    np.testing.assert_array_equal(got, _without(world, {"telco"}, rows))
    for request in range(2):
        assert list(answers[0, request].degraded) == ["telco"]
        assert 0 < answers[0, request].degraded["telco"] <= 1
    assert max(schedule.answered_at.values()) < (0.1 if known else 0.5)


@pytest.mark.parametrize("mode", MODES)
def test_active_only_uses_nobody_elses_splits_once_a_party_is_away(
    world: World, mode: Mode
) -> None:
    rows = np.arange(30)
    batch = world.batch(rows, None, mode, "active_only", Timeouts(away=0.3))

    answers = OnlineSchedule([batch], world.shares, away={"telco": (0.0, 99.0)}).run()

    expected = _without(world, {"telco", "retail"}, rows)
    np.testing.assert_array_equal(answers[0, 0].margins, expected)
    assert set(answers[0, 0].degraded) == {"telco", "retail"}


@pytest.mark.parametrize("mode", MODES)
def test_fail_names_the_party_that_it_waited_for(world: World, mode: Mode) -> None:
    batch = world.batch(np.arange(5), [AskedRows(0, 5, 0.5)], mode)
    schedule = OnlineSchedule([batch], world.shares, away={"telco": (0.0, 99.0)})

    answer = schedule.run()[0, 0]

    assert isinstance(answer, PeerSilent)
    assert "0.5 s" in str(answer)
    assert "telco" in str(answer)
    assert schedule.answered_at[0, 0] == pytest.approx(0.5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("degrade", ["fail", "partial", "active_only"])
@each_seed(6)
def test_no_request_hangs_past_its_time(
    world: World, mode: Mode, degrade: Degrade, seed: int
) -> None:
    random = np.random.default_rng(seed)
    requests = [AskedRows(0, 3, 0.05), AskedRows(3, 10, 0.2), AskedRows(10, 20, 5.0)]
    batch = world.batch(np.arange(20), requests, mode, degrade, Timeouts(away=0.4))
    away = {"telco": (random.random() * 0.1, 0.3 + random.random())}
    schedule = OnlineSchedule([batch], world.shares, seed, BAD, away, slow_work=0.001)

    answers = schedule.run()

    for index, request in enumerate(requests):
        assert schedule.answered_at[0, index] <= request.seconds + 0.002
        result: Any = answers[0, index]
        if isinstance(result, OnlineScores) and not result.degraded:
            expected = world.margins[request.start : request.stop]
            np.testing.assert_array_equal(result.margins, expected)


def test_answers_that_nobody_asked_for_change_nothing(world: World) -> None:
    batch = world.batch(np.arange(5))
    effects = batch.handle(Start())
    effects = batch.handle(_computed(effects))
    hop = next(
        effect.body for effect in effects if isinstance(getattr(effect, "body", None), OnlineHop)
    )
    none = Array.of(np.empty(0, np.uint32))

    unexpected = OnlineExits(batch=0, hop=999, exits=none, unknown=none)
    assert batch.handle(Received("telco", unexpected)) == []
    for wrong in (
        OnlineExits(batch=0, hop=hop.hop, exits=none, unknown=none),
        OnlineExits(
            batch=0,
            hop=hop.hop,
            exits=Array.of(np.full(len(hop.rows.numpy()), 2**31, np.uint32)),
            unknown=none,
        ),
    ):
        with pytest.raises(ProtocolError):
            batch.handle(Received(_asked(effects, hop), wrong))
    batch.check()


def _computed(effects: list[Any]) -> Any:
    from fedmq.protocol.events import RunPlan
    from fedmq.protocol.machine import run_inline

    [run] = [effect for effect in effects if isinstance(effect, RunPlan)]
    return run_inline(run)


def _asked(effects: list[Any], body: OnlineHop) -> str:
    return str(
        next(effect.recipient for effect in effects if getattr(effect, "body", None) is body)
    )

"""Requests at the active party: together in batches, in time, and honest about who is away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmq.errors import DataError, FedmqError, Overloaded, PeerAway, PeerSilent, Refused
from fedmq.party.configuration.policy import PolicySection
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.consent.policy_consent import PolicyConsent
from fedmq.party.online.rows import Rows, ServedRows
from fedmq.protocol.online.options import Mode
from tests.party.online.serving_harness import ServingHarness
from tests.protocol.online.test_online import MODES, World, usual_world
from tests.virtual_clock import in_virtual_time


@pytest.fixture(scope="module")
def world() -> World:
    return usual_world()


@pytest.mark.parametrize("mode", MODES)
async def test_concurrent_requests_get_their_own_exact_scores(world: World, mode: Mode) -> None:
    harness = ServingHarness(world, mode=mode, drop=0.1, delay=0.01, deadline=30.0)
    random = np.random.default_rng(1)
    asked = [random.choice(600, size=size) for size in random.integers(1, 60, 50)]

    got = await asyncio.gather(*(harness.margins([world.ids[r] for r in rows]) for rows in asked))

    for rows, margins in zip(asked, got, strict=True):
        np.testing.assert_array_equal(margins, world.margins[rows])
    assert harness.scorer.batcher.counts.batches < 50


async def test_a_large_request_is_cut_and_comes_back_in_order(world: World) -> None:
    harness = ServingHarness(world, batch_rows=50)

    margins = await harness.margins(world.ids)

    np.testing.assert_array_equal(margins, world.margins)
    assert harness.scorer.batcher.counts.batches == 12


async def test_rows_of_a_large_request_start_at_their_own_margins(world: World) -> None:
    harness = ServingHarness(world, batch_rows=50)
    start = np.random.default_rng(3).normal(size=600).astype(np.float32)
    passive = {party: world.columns[party] for party in ("telco", "retail")}
    active = world.columns["active"]
    expected = world.model.predict(
        active=active, passive=passive, base_margin=start, output_margin=True
    )
    moved = await harness.margins(world.ids, base_margin=start)
    np.testing.assert_array_equal(moved, expected)
    np.testing.assert_array_equal(await harness.margins(world.ids), world.margins)


async def test_own_features_in_the_request_replace_what_is_stored(world: World) -> None:
    harness = ServingHarness(world)
    names = world.model.share.lookup_table.feature_names
    features = [
        {name: (None if np.isnan(x) else float(x)) for name, x in zip(names, values, strict=True)}
        for values in world.columns["active"][:20]
    ]
    moved = features[1:] + features[:1]

    np.testing.assert_array_equal(
        await harness.margins(world.ids[:20], features=features), world.margins[:20]
    )
    table = np.hstack([np.roll(world.columns["active"][:20], -1, axis=0), *(
        world.columns[party][:20] for party in ("telco", "retail")
    )])  # fmt: skip
    np.testing.assert_array_equal(
        await harness.margins(world.ids[:20], features=moved), world.xgboost_margins(table)
    )


async def test_an_id_unknown_to_the_active_party_is_named(world: World) -> None:
    scored = await ServingHarness(world).scorer.score("production", [world.ids[0], "nobody"])

    assert scored.scores.unknown["active"].tolist() == [False, True]
    assert scored.scores.margins[0] == world.margins[0]


@pytest.mark.parametrize(
    ("feature", "text"),
    [({"age": 1.0}, r"features\.0\.age"), ({"f0": float("inf")}, r"features\.0\.f0: infinite"),
     ({"f0": 1e39}, r"features\.0\.f0: beyond float32")],
)  # fmt: skip
async def test_a_wrong_feature_is_named(world: World, feature: dict[str, float], text: str) -> None:
    with pytest.raises(DataError, match=text):
        await ServingHarness(world).margins(world.ids[:1], features=[feature])


async def test_a_model_that_is_not_served_is_an_error_that_names_those_that_are(
    world: World,
) -> None:
    with pytest.raises(DataError, match=r"'staging' is not served; there are: production"):
        await ServingHarness(world).scorer.score("staging", world.ids[:1])


def test_a_silent_party_is_waited_for_no_longer_than_the_deadline(world: World) -> None:
    async def seconds_of_waiting() -> float:
        harness = ServingHarness(world)
        harness.away = {"telco"}
        clock = asyncio.get_running_loop().time
        start = clock()
        with pytest.raises(PeerSilent, match="telco"):
            await harness.margins(world.ids[:3], seconds=0.3)
        return clock() - start

    assert 0.29 < in_virtual_time(seconds_of_waiting()) <= 0.3


def test_a_party_that_is_away_is_not_asked_again_until_it_is_back(world: World) -> None:
    async def scenario() -> None:
        harness = ServingHarness(world, degrade="partial", away=0.15)
        harness.away = {"telco"}
        for _ in range(2):
            degraded = (await harness.scorer.score("production", world.ids[:9])).scores.degraded
            assert list(degraded) == ["telco"]
        assert harness.scorer.status()["away"] == ["telco"]

        clock = asyncio.get_running_loop().time
        start = clock()
        again = (await harness.scorer.score("production", world.ids[:9])).scores
        assert clock() - start < 0.01
        assert list(again.degraded) == ["telco"]

        harness.away = set()
        await asyncio.sleep(0.26)
        back = (await harness.scorer.score("production", world.ids[:9])).scores
        assert not back.degraded
        np.testing.assert_array_equal(back.margins, world.margins[:9])
        await harness.scorer.close()

    in_virtual_time(scenario())


def test_while_the_own_link_is_down_no_other_party_is_blamed_and_scores_are_back_with_it(
    world: World,
) -> None:
    async def scenario() -> None:
        harness, clock = ServingHarness(world), asyncio.get_running_loop().time
        harness.scorer.link_changed(False)
        harness.away = {"telco", "retail"}
        for _ in range(3):  # callers wait at first: most outages end before their deadlines
            with pytest.raises(PeerSilent, match="active has no connection to its broker"):
                await harness.margins(world.ids[:3], seconds=1.0)
        start = clock()
        with pytest.raises(PeerAway, match=r"^active has no connection to its broker; ask again"):
            await harness.margins(world.ids[:3])
        assert clock() == start
        assert harness.scorer.away == []

        harness.scorer.link_changed(True)
        harness.away = set()
        np.testing.assert_array_equal(await harness.margins(world.ids[:3]), world.margins[:3])
        assert clock() - start < 0.01

    in_virtual_time(scenario())


@pytest.mark.parametrize("options", [{}, {"degrade": "partial", "away": 0.8}])
def test_while_the_own_link_is_frozen_no_other_party_is_blamed(
    world: World, options: dict[str, Any]
) -> None:
    async def scenario() -> None:
        harness, clock = ServingHarness(world, **options), asyncio.get_running_loop().time
        harness.thawed.clear()
        for _ in range(3):
            with contextlib.suppress(PeerSilent):
                await harness.margins(world.ids[:3], seconds=1.0)
        assert harness.scorer.away == []
        start = clock()
        if not options:
            with pytest.raises(PeerAway, match=r"^active gets no answer from its broker; ask"):
                await harness.margins(world.ids[:3])
        else:
            await harness.margins(world.ids[:3])
        assert clock() == start

        harness.thawed.set()
        np.testing.assert_array_equal(await harness.margins(world.ids[:3]), world.margins[:3])
        assert clock() - start < 0.3
        await harness.scorer.close()

    in_virtual_time(scenario())


def test_a_request_over_a_frozen_link_names_this_party_and_not_the_other(world: World) -> None:
    async def scenario() -> None:
        harness = ServingHarness(world)
        harness.thawed.clear()
        with pytest.raises(PeerSilent, match=r"^active gets no answer from its broker"):
            await harness.margins(world.ids[:3], seconds=1.0)
        await harness.scorer.close()

    in_virtual_time(scenario())


def test_a_broker_that_answers_is_asked_once_a_batch_and_the_silent_party_is_named(
    world: World,
) -> None:
    async def scenario() -> None:
        harness = ServingHarness(world)
        harness.away = {"telco"}
        for _ in range(2):
            with pytest.raises(PeerSilent, match="telco"):
                await harness.margins(world.ids[:3], seconds=1.0)
        assert harness.asked_broker == 2
        assert harness.scorer.away == ["telco"]
        await harness.scorer.close()

    in_virtual_time(scenario())


def test_what_was_asked_before_the_own_link_was_back_is_no_miss(world: World) -> None:
    async def scenario() -> None:
        harness = ServingHarness(world)
        harness.away = {"telco"}
        harness.scorer.link_changed(False)
        asked = [asyncio.ensure_future(harness.margins(world.ids[:3])) for _ in range(5)]
        await asyncio.sleep(1.9)
        harness.scorer.link_changed(True)
        for error in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(error, PeerSilent)
        assert harness.scorer.away == []

    in_virtual_time(scenario())


@pytest.mark.parametrize(("talks", "away"), [(True, []), (False, ["telco"])])
def test_a_party_that_is_heard_on_another_lane_is_not_away(
    world: World, talks: bool, away: list[str]
) -> None:
    async def scenario() -> None:
        harness = ServingHarness(world)
        harness.away = {"telco"}
        for _ in range(3):
            asked = asyncio.ensure_future(harness.margins(world.ids[:3], seconds=0.5))
            await asyncio.sleep(0.1)
            if talks:
                harness.heard["telco"] = asyncio.get_running_loop().time()
            await asyncio.gather(asked, return_exceptions=True)
        assert harness.scorer.away == away
        await harness.scorer.close()

    in_virtual_time(scenario())


@pytest.mark.parametrize("seconds_away", [0.3, 2.9, 6.5, 12.7, 40.0])
def test_a_request_under_way_is_answered_within_a_second_of_a_partys_return(
    world: World, seconds_away: float
) -> None:
    async def scenario() -> None:
        harness = ServingHarness(world, ask_again=0.2)
        harness.away = {"telco"}
        clock = asyncio.get_running_loop().time
        start = clock()
        asked = asyncio.ensure_future(harness.margins(world.ids[:3], seconds=60.0))
        await asyncio.sleep(seconds_away)
        harness.away = set()
        np.testing.assert_array_equal(await asked, world.margins[:3])
        assert clock() - start < seconds_away + 1.01

    in_virtual_time(scenario())


@pytest.mark.parametrize("degrade", ["fail", "partial"])
def test_every_request_is_answered_by_its_deadline_whoever_comes_and_goes(
    world: World, degrade: str
) -> None:
    async def scenario() -> None:
        harness = ServingHarness(world, degrade=degrade, drop=0.3, delay=0.4, batches=2)
        random = np.random.default_rng(5)
        clock = asyncio.get_running_loop().time

        async def late(seconds: float) -> float:
            start = clock()
            with contextlib.suppress(FedmqError):
                await harness.scorer.score("production", world.ids[:30], seconds=seconds)
            return clock() - start - seconds

        asked = []
        for number in range(150):
            harness.away = set(random.choice(["telco", "retail"], random.integers(3), False))
            if number % 10 == 0:  # the own link goes, at times for longer than callers wait for it
                harness.scorer.link_changed(bool(random.integers(2)))
            asked.append(asyncio.ensure_future(late(float(random.uniform(0.01, 3.0)))))
            await asyncio.sleep(float(random.exponential(0.1)))
        assert max(await asyncio.gather(*asked)) < 0.001
        harness.away = set()
        await harness.scorer.close()

    in_virtual_time(scenario())


async def test_more_rows_than_the_queue_holds_are_turned_away(world: World) -> None:
    harness = ServingHarness(world, queue_rows=100, batches=1, batch_rows=10)
    harness.away = {"telco"}
    first = asyncio.gather(
        *(harness.margins(world.ids[:50], seconds=0.3) for _ in range(2)), return_exceptions=True
    )
    await asyncio.sleep(0.05)

    with pytest.raises(Overloaded, match="ask again later"):
        await harness.margins(world.ids[:50])

    assert all(isinstance(error, PeerSilent) for error in await first)


class SlowRows(ServedRows):
    """Rows that are found once ``found`` is set."""

    def __init__(self, rows: ServedRows) -> None:
        self.features = rows.features
        self.found = asyncio.Event()
        self._rows = rows

    async def about(self, ids: Sequence[str], seconds: float) -> Rows:
        await self.found.wait()
        return await self._rows.about(ids, seconds)


async def test_rows_have_their_place_in_the_queue_while_they_are_looked_up(world: World) -> None:
    harness = ServingHarness(world, queue_rows=100)
    model = harness.scorer.models["production"]
    slow = SlowRows(model.rows)
    harness.scorer.models["production"] = replace(model, rows=slow)
    under_way = asyncio.create_task(harness.margins(world.ids[:60]))
    given_up = asyncio.create_task(harness.margins(world.ids[:40]))
    await asyncio.sleep(0)

    assert harness.scorer.queued_rows == 100
    with pytest.raises(Overloaded, match="100 rows wait already"):
        await harness.margins(world.ids[:1])

    given_up.cancel()
    await asyncio.wait({given_up})
    assert harness.scorer.queued_rows == 60
    slow.found.set()
    np.testing.assert_array_equal(await under_way, world.margins[:60])
    assert harness.scorer.queued_rows == 0


async def test_more_rows_than_one_request_may_have_are_refused(world: World) -> None:
    with pytest.raises(DataError, match="at most 100"):
        await ServingHarness(world, request_rows=100).margins(world.ids[:101])


async def test_a_party_that_lost_the_model_is_told_again_and_waited_for(world: World) -> None:
    harness = ServingHarness(world)
    telco = harness.parties["telco"]
    served = dict(telco.shares)
    telco.shares.clear()
    asyncio.get_running_loop().call_later(0.2, telco.shares.update, served)

    np.testing.assert_array_equal(await harness.margins(world.ids[:5]), world.margins[:5])
    assert ("telco", "simulated") in harness.not_served


async def test_a_request_under_way_keeps_the_model_it_began_with(world: World) -> None:
    other = World(rows=600, trees=3)
    harness = ServingHarness(world, delay=0.05)
    under_way = asyncio.create_task(harness.margins(world.ids[:9]))
    await asyncio.sleep(0.01)

    harness.scorer.models["production"] = ServingHarness(other).model()

    np.testing.assert_array_equal(await under_way, world.margins[:9])


async def test_what_is_not_kept_is_served_no_more_but_for_what_is_under_way(world: World) -> None:
    harness = ServingHarness(world, delay=0.05)
    harness.scorer.models["simulated"] = harness.scorer.models["production"]
    under_way = asyncio.create_task(harness.margins(world.ids[:9]))
    await asyncio.sleep(0.01)

    harness.scorer.forget_all_but({"newer"})

    assert not harness.scorer.models
    np.testing.assert_array_equal(await under_way, world.margins[:9])


@pytest.mark.parametrize("mode", MODES)
async def test_a_batch_that_cannot_be_asked_about_fails_at_once_and_gives_its_place_back(
    world: World, mode: Mode
) -> None:
    harness = ServingHarness(world, mode=mode)
    for _ in range(10):
        with pytest.raises(FedmqError, match="internal error: ValidationError"):
            await harness.margins(["x" * 300])

    assert harness.scorer.batcher.idle
    np.testing.assert_array_equal(await harness.margins(world.ids[:9]), world.margins[:9])


@pytest.mark.parametrize(
    ("limits", "mode", "text"),
    [
        ({"modes": ["hop"]}, "bitmap", "mode bitmap is not answered"),
        ({"scores_per_id": 2}, "hop", "more than 2 scores per id"),
        ({"rows_per_second": 2}, "bitmap", "more than 2 rows per second"),
        ({"records_per_id": 1}, "hop", "more than 1 records per id"),
    ],
)
async def test_a_data_owner_limits_what_is_answered(
    world: World, limits: dict[str, object], mode: Mode, text: str
) -> None:
    harness = ServingHarness(world, mode=mode, limits=limits)

    with pytest.raises(Refused, match=text):
        for _ in range(3):
            await harness.margins(world.ids[:9])


async def test_retries_do_not_count_against_the_limits(world: World) -> None:
    harness = ServingHarness(
        world, mode="bitmap", limits={"scores_per_id": 1}, drop=0.4, deadline=20.0
    )

    np.testing.assert_array_equal(await harness.margins(world.ids[:9]), world.margins[:9])


async def test_a_party_whose_policy_takes_scoring_back_answers_no_more_at_once(
    world: World, tmp_path: Path
) -> None:
    harness = ServingHarness(world, deadline=1.0)
    telco = harness.parties["telco"]
    consent = PolicyConsent("telco", PolicySection(), AuditLog(tmp_path))
    telco._consent = consent.answering
    np.testing.assert_array_equal(await harness.margins(world.ids[:9]), world.margins[:9])

    consent.reload(PolicySection.model_validate({"sessions": ["training"]}))

    with pytest.raises(Refused, match="telco does not take part in inference"):
        await harness.margins(world.ids[:9])


@pytest.mark.parametrize("mode", ["hop", "bitmap"])
async def test_the_hourly_rows_of_a_policy_hold_online_too(
    world: World, tmp_path: Path, mode: Mode
) -> None:
    harness = ServingHarness(world, mode=mode, drop=0.2, deadline=20.0)
    consent = PolicyConsent("telco", PolicySection(most_rows_per_hour=20), AuditLog(tmp_path))
    harness.parties["telco"]._agree = consent.scoring
    harness.parties["telco"]._until_written = consent.until_written
    for _ in range(2):
        np.testing.assert_array_equal(await harness.margins(world.ids[:9]), world.margins[:9])

    with pytest.raises(Refused, match="it answers for 20 rows an hour; 18 were asked for"):
        await harness.margins(world.ids[:9])

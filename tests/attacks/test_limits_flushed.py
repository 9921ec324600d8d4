"""A caller asks about made-up ids so that what is counted about people is pushed out of memory."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.model.served_forest import RecordPlaces
from fedmq.errors import RateLimited
from fedmq.messages.array import Array
from fedmq.messages.online import OnlineExits, OnlineHop
from fedmq.party.configuration.online import OnlineSection
from fedmq.party.online.answering import AskedPeople, AskedShare, RateLimits
from tests.attacks.test_hop_as_bitmap import Liar, refused
from tests.protocol.online.test_online import World, usual_world

HOUR = 3600.0
SHARE = AskedShare("m", most_records=8)


@pytest.fixture(scope="module")
def world() -> World:
    return usual_world()


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def question(batch: int, records: list[int], name: str = "P1") -> OnlineHop:
    return OnlineHop(
        batch=batch,
        hop=1,
        model="m",
        ids=(name,),
        rows=Array.of(np.zeros(len(records), np.uint32)),
        records=Array.of(np.array(records, np.uint32)),
        budget=1.0,
    )


def ask(limits: RateLimits, *asked: Any, known: bool = True, found: bool = True) -> None:
    """As a daemon does, whose rows are ``found``, and in them the person if it is ``known``."""
    body = question(*asked)
    pairs = body.rows.values, body.records.values
    limits.check("bank", "s", body, pairs, SHARE, lambda _: False)
    if found:
        limits.count("bank", "s", body, pairs, SHARE, body.ids if known else ())


def limits(asked: AskedPeople, **section: Any) -> RateLimits:
    return RateLimits(OnlineSection.model_validate(section), lambda: 0.0, asked)


async def test_a_flood_of_ids_that_nobody_has_frees_no_record_of_a_person(world: World) -> None:
    liar = Liar(world, records_per_id=2)
    for batch, record in enumerate(liar.records[:2]):
        assert isinstance(await liar.ask([record], batch=batch), OnlineExits)
    for batch in range(2, 27):
        nobody = tuple(f"nobody{batch}-{number}" for number in range(4096))
        assert isinstance(await liar.ask([], batch=batch, ids=nobody), OnlineExits)
    assert refused(await liar.ask([liar.records[2]], batch=100))


async def test_the_limit_that_nobody_set_holds_as_well(world: World) -> None:
    liar = Liar(world)
    most = 2 * RecordPlaces.of(liar.share.places).longest_ways()
    answers = [
        await liar.ask([record], batch=batch) for batch, record in enumerate(liar.records, start=1)
    ]
    assert sum(isinstance(answer, OnlineExits) for answer in answers) == min(
        most, len(liar.records)
    )
    assert isinstance(await liar.ask([], batch=10_000, ids=("nobody",)), OnlineExits)


def test_more_people_than_are_counted_are_refused_until_the_hour_is_over() -> None:
    clock = Clock()
    counted = limits(AskedPeople(None, clock, most_people=3), scores_per_id=1)
    for batch in range(3):
        ask(counted, batch, [0], f"P{batch}")
    with pytest.raises(RateLimited, match="more than 3 people were asked about within the hour"):
        ask(counted, 3, [0], "P3")
    with pytest.raises(RateLimited, match="more than 1 scores per id and hour"):
        ask(counted, 4, [0], "P0")
    assert counted.turned_away == 2
    clock.now += HOUR + 1
    ask(counted, 5, [0], "P3")
    ask(counted, 6, [0], "P0")


def test_a_question_whose_rows_were_not_found_in_time_is_counted_when_it_comes_again() -> None:
    counted = limits(AskedPeople(None, Clock()), scores_per_id=1)
    ask(counted, 1, [0], found=False)
    ask(counted, 1, [0])
    ask(counted, 1, [0])
    with pytest.raises(RateLimited, match="scores per id"):
        ask(counted, 2, [0])


def test_of_two_questions_that_are_looked_up_together_one_is_refused() -> None:
    counted = limits(AskedPeople(None, Clock()), records_per_id=1)
    first, second = question(1, [0]), question(2, [1])
    for body in (first, second):
        pairs = body.rows.values, body.records.values
        counted.check("bank", "s", body, pairs, SHARE, lambda _: False)
    counted.count("bank", "s", first, (first.rows.values, first.records.values), SHARE, ("P1",))
    with pytest.raises(RateLimited, match="more than 1 records per id and hour"):
        counted.count(
            "bank", "s", second, (second.rows.values, second.records.values), SHARE, ("P1",)
        )


async def restarted(path: Path, clock: Clock) -> RateLimits:
    asked = AskedPeople(path, clock)
    asked.read()
    return limits(asked, records_per_id=2, scores_per_id=4)


async def test_a_restart_forgets_nobody_within_the_hour(tmp_path: Path) -> None:
    path, clock = tmp_path / "asked.sqlite", Clock()
    first = await restarted(path, clock)
    ask(first, 1, [0])
    ask(first, 2, [5])
    await first.asked.close()
    again = await restarted(path, clock)
    ask(again, 1, [5])
    with pytest.raises(RateLimited, match="more than 2 records per id and hour"):
        ask(again, 2, [1])
    await again.asked.close()
    third = await restarted(path, clock)
    ask(third, 3, [0])
    with pytest.raises(RateLimited, match="more than 4 scores per id and hour"):
        ask(third, 4, [0])
    ask(third, 4, [1], "P2")


async def test_the_file_names_no_person_and_an_old_one_holds_nobody_back(tmp_path: Path) -> None:
    path, clock = tmp_path / "asked.sqlite", Clock()
    first = await restarted(path, clock)
    ask(first, 1, [0, 1], "Adelheid")
    await first.asked.close()
    assert b"Adelheid" not in path.read_bytes()
    with sqlite3.connect(path) as file:
        file.execute("UPDATE hour SET begun = begun - 3700")
    ask(await restarted(path, clock), 1, [2, 3], "Adelheid")


def kept(path: Path) -> list[Any]:
    with sqlite3.connect(path) as file:
        return file.execute("SELECT * FROM asked").fetchall()


async def test_a_damaged_file_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "asked.sqlite"
    path.write_bytes(b"no database at all" * 100)
    counted = await restarted(path, Clock())
    ask(counted, 1, [0])
    await counted.asked.close()
    assert len(kept(path)) == 2

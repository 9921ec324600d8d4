"""Sketches of people: how many differ, and what several earlier sets leave together."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmq.errors import Refused
from fedmq.party.store.answered_people import (
    AnsweredPeopleStore,
    combination,
    people_in,
    sketch_of,
)
from fedmq.party.store.database import MIGRATIONS, Database
from fedmq.protocol.session_records import PeopleAnswered, RowPeople, hashed_ids

SECRET = bytes(range(32))
SMALLEST = 50

People = NDArray[np.uint64]


def people(*numbers: int) -> People:
    """Those from one number to the next, for each pair of ``numbers``."""
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return hashed_ids([f"p{number}" for first, last in pairs for number in range(first, last)])


def sketches(*sets: People) -> NDArray[np.int32]:
    return np.array([sketch_of(asked, SECRET) for asked in sets], np.int32).reshape(-1, 2048)


def differ(first: People, second: People) -> float:
    one, other = sketches(first, second)
    return people_in((one - other).astype(np.float64))


def test_a_sketch_says_how_many_people_differ_and_never_too_many_of_a_few() -> None:
    for number in (1, 2, 10, 45, 50, 60, 100):
        for start in range(0, 500, 100):
            counted = differ(people(0, 700), people(0, start, start + number, 700))
            assert 0.9 * number <= counted <= number
    for number in (500, 5000):
        assert 0.8 * number < differ(people(0, 9000), people(number, 9000)) <= number
    assert differ(people(0, 5000), people(0, 5000)) == 0
    assert differ(people(0, 30, 60, 90), people(30, 60, 100, 130)) > 100


def test_people_who_share_a_place_do_not_count_as_more() -> None:
    """Squares would say 20.1 of this sketch."""
    secret = hashlib.sha256(b"2062").digest()
    assert people_in(sketch_of(people(0, 20), secret).astype(np.float64)) <= 20


def test_a_swap_is_a_difference_of_two() -> None:
    for leaver in range(0, 200, 5):
        left = people(0, leaver, leaver + 1, 500, 600, 601)
        assert differ(people(0, 500), left) == 2


def test_four_sets_that_leave_a_person_are_found_whatever_came_between() -> None:
    others = [people(start, start + 700) for start in range(0, 4000, 130)]
    a, b, c, d = ((start, start + 600) for start in (10_000, 10_600, 11_200, 11_800))
    asked = [people(*a, *b), people(*c, *d, 20_000, 20_003), people(*a, *c)]
    earlier = sketches(*others[:10], asked[0], *others[10:20], asked[1], asked[2], *others[20:])
    found = combination(sketches(people(*b, *d))[0], earlier, SMALLEST)
    assert found is not None
    assert (found.people, found.earlier) == (3, (10, 21, 22))
    assert combination(sketches(people(*b, *d, 20_000, 20_003))[0], earlier, SMALLEST) is None


@pytest.mark.parametrize("left", [1, 10, 40])
def test_combinations_of_many_sets_at_random_are_found(left: int) -> None:
    random = np.random.default_rng(left)
    crowd = people(0, 3000)
    for _ in range(5):
        sets = [random.random(3000) < 0.5 for _ in range(5)]
        counts = sets[0].astype(int) + sets[1] - sets[2]
        # The people of a set that sums so, but for a few of them.
        new = counts == 1
        sets += [counts == 2, counts == -1]
        few = random.choice(np.flatnonzero(new), left, replace=False)
        new[few] = False
        found = combination(
            sketches(crowd[new])[0], sketches(*(crowd[of] for of in sets)), SMALLEST
        )
        assert found is not None and 0.9 * left <= found.people <= left


def test_folds_of_several_seeds_and_held_out_people_are_no_combination() -> None:
    random = np.random.default_rng(0)
    for number, folds in ((250, 5), (500, 10)):
        crowd = people(0, number)
        sets = [crowd]
        for _ in range(2):
            parts = np.array_split(random.permutation(number), folds)
            sets += [np.delete(crowd, part) for part in parts]
        sets += [crowd[random.random(number) > 0.3] for _ in range(4)]
        known = sketches(*sets)
        for place in range(1, len(sets)):
            assert combination(known[place], known[:place], SMALLEST) is None, place


def test_rows_that_fewer_trees_than_people_draw_are_no_combination() -> None:
    """Why combinations of drawn rows need not be compared."""
    random, crowd = np.random.default_rng(0), people(0, 300)
    known = sketches(crowd, *(crowd[random.random(300) < 0.8] for _ in range(100)))
    for place in range(5, len(known), 19):
        assert combination(known[place], known[:place], SMALLEST) is None, place


def test_what_follows_from_earlier_answers_tells_nothing_new() -> None:
    folds = [people(0, 100, 200, 300), people(100, 300), people(0, 200)]
    assert combination(sketches(people(0, 300))[0], sketches(*folds), SMALLEST) is None
    assert combination(sketches(people(0, 100))[0], sketches(), SMALLEST) is None


def test_whoever_lacks_the_secret_reads_nothing_from_a_sketch() -> None:
    one, other = (sketch_of(people(0, 1000), bytes([key]) * 32) for key in (1, 2))
    assert people_in((one - other).astype(np.float64)) > 1500


# The store


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(tmp_path / "fedmq.sqlite")
    await database.open()
    yield database
    await database.close()


def answered(asked: People, part: str = "rows", combines: bool = True) -> PeopleAnswered:
    return PeopleAnswered("telco", part, asked, combines)


async def test_the_refusal_names_the_earlier_session_and_nothing_refused_is_kept(
    database: Database,
) -> None:
    store = AnsweredPeopleStore(database)
    await store.keep("one", answered(people(0, 500)), SMALLEST)
    await store.keep("two", answered(people(0, 500)), SMALLEST)
    await store.keep("three", answered(people(100, 600)), SMALLEST)
    # Two of 20 people cancel each other in both halves of one sketch in a hundred.
    words = r"telco answers about people who differ by 50 or nobody .* about (20|18|16) from those "
    with pytest.raises(Refused, match=f"{words}of session one$"):
        await store.keep("four", answered(people(20, 500)), SMALLEST)
    with pytest.raises(Refused, match=f"{words}of session three$"):
        await store.keep("four", answered(people(100, 580), "tree 3"), SMALLEST)
    await store.keep("five", answered(people(50, 500)), SMALLEST)
    await store.keep("four", answered(people(1000, 1480)), SMALLEST)


async def test_what_trees_draw_is_compared_in_pairs_alone(database: Database) -> None:
    store = AnsweredPeopleStore(database)
    await store.keep("one", answered(people(0, 300), "tree 0", combines=False), SMALLEST)
    await store.keep("one", answered(people(300, 600), "tree 1", combines=False), SMALLEST)
    await store.keep("one", answered(people(0, 601), "tree 2", combines=False), SMALLEST)
    with pytest.raises(Refused, match="session one, tree 2"):
        await store.keep("two", answered(people(0, 602)), SMALLEST)
    await store.keep("two", answered(people(1000, 1300)), SMALLEST)
    await store.keep("three", answered(people(1300, 1600)), SMALLEST)
    with pytest.raises(Refused, match=r"combination of those of session (two|three); session"):
        await store.keep("four", answered(people(1000, 1601), "tree 2", combines=False), SMALLEST)


async def test_a_tree_that_grows_again_on_others_drops_nobody(database: Database) -> None:
    store = AnsweredPeopleStore(database)
    for _ in range(2):
        for asked in (people(0, 300), people(1000, 1300)):
            await store.keep("one", answered(asked, "tree 0", combines=False), SMALLEST)
    query = "SELECT count(*) FROM answered_people"
    assert await database.read(lambda found: found.execute(query).fetchone()) == (2,)
    for asked in (people(1, 300), people(1001, 1300)):
        with pytest.raises(Refused, match="session one, tree 0"):
            await store.keep("two", answered(asked), SMALLEST)


async def test_they_are_kept_when_the_daemon_stops(tmp_path: Path) -> None:
    for session in ("one", "two"):
        database = Database(tmp_path / "fedmq.sqlite")
        await database.open()
        store = AnsweredPeopleStore(database)
        if session == "one":
            await store.keep(session, answered(people(0, 500)), SMALLEST)
        else:
            with pytest.raises(Refused, match="session one"):
                await store.keep(session, answered(people(1, 500)), SMALLEST)
        await database.close()


async def test_a_state_folder_of_an_earlier_version_keeps_people_from_now_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "fedmq.sqlite"
    with sqlite3.connect(path) as connection:
        for number, script in enumerate(MIGRATIONS[:9], start=1):
            connection.executescript(f"{script} PRAGMA user_version = {number};")
    connection.close()
    database = Database(path)
    await database.open()
    await AnsweredPeopleStore(database).keep("one", answered(people(0, 500)), SMALLEST)
    secrets = await database.read(
        lambda found: found.execute("SELECT secret FROM people_secret").fetchall()
    )
    await database.close()
    assert [len(secret) for (secret,) in secrets] == [32]


async def test_a_set_takes_four_kilobytes_for_any_number_of_people(database: Database) -> None:
    crowd = np.random.default_rng(0).integers(2**63, size=200_000).astype(np.uint64)
    await AnsweredPeopleStore(database).keep("one", answered(crowd), SMALLEST)
    query = "SELECT people, length(sketch) FROM answered_people"
    assert await database.read(lambda found: found.execute(query).fetchall()) == [(200_000, 4096)]


# Which people a session is about


def test_folds_and_drawn_rows_are_named_once() -> None:
    learning = np.arange(10) < 8
    rows = RowPeople("telco", people(0, 10), learning, folds=2)
    whole = rows.of_session()
    assert (whole.part, whole.combines) == ("rows", True)
    np.testing.assert_array_equal(whole.people, people(0, 8))
    assert rows.of_tree(0, np.ones(10, np.bool_)) == ()
    fold, other = np.arange(10) < 4, np.arange(10) >= 4
    [first] = rows.of_tree(0, fold)
    [second] = rows.of_tree(1, other)
    np.testing.assert_array_equal(first.people, people(0, 4))
    np.testing.assert_array_equal(second.people, people(4, 8))
    assert (first.part, first.combines, second.combines) == ("tree 0", True, True)
    assert rows.of_tree(2, fold) == ()
    [drawn] = rows.of_tree(3, np.arange(10) < 3)
    assert not drawn.combines


def test_a_person_with_another_number_of_rows_is_another_person() -> None:
    everybody, learning = people(0, 10), np.ones(12, np.bool_)

    def counted(*more: int) -> set[int]:
        rows = np.concatenate([everybody, everybody[list(more)]])
        return {
            *RowPeople("telco", rows, learning[: len(rows)], folds=1).of_session().people.tolist()
        }

    one_each, twice, thrice = counted(), counted(3), counted(3, 3)
    assert one_each == {*everybody.tolist()}
    assert len(one_each - twice) == len(twice - one_each) == len(twice - thrice) == 1
    assert len(counted(3, 4) - twice) == 1

"""An active party that goes on with a session of old trains anew in it, and no quota counts it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.model.tree import LookupTable
from fedmq.errors import OldState, Refused
from fedmq.messages.array import pack_payload
from fedmq.messages.envelope import Header
from fedmq.party.store.database import Database
from fedmq.party.store.journal import SessionStore, StoredSession
from fedmq.protocol.session_records import PassiveTree
from fedmq.protocol.training.passive import kept_before
from fedmq.protocol.training.terms import terms_digest
from tests.party.consent.test_policy_consent import HEADER, consent, terms
from tests.party.daemons_in_memory import DaemonsInMemory


@pytest.fixture
async def federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[DaemonsInMemory]:
    """Three parties that have trained a model, and the bank is stopped."""
    federation = DaemonsInMemory(tmp_path, monkeypatch)
    await federation.start()
    await federation.train("m", 3)
    await federation.stop("bank")
    yield federation
    await federation.stop()


async def went_on(federation: DaemonsInMemory, *, trees: int, **params: Any) -> tuple[str, str]:
    """How the session ends at the bank, which takes it up with its first trees."""
    path = federation.folder / "bank" / "state" / "fedmq.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        [(job,)] = connection.execute("SELECT job FROM sessions").fetchall()
        changed = json.loads(job)
        changed["params"] |= params
        connection.execute("UPDATE sessions SET state = 'running', job = ?", (json.dumps(changed),))
        connection.execute("DELETE FROM margins WHERE tree >= ?", (trees,))
        connection.execute("DELETE FROM steps WHERE tree >= ?", (trees,))
    await federation.start("bank")

    async def ended() -> tuple[str, str] | None:
        with closing(sqlite3.connect(path)) as connection:
            [(state, reason)] = connection.execute("SELECT state, reason FROM sessions").fetchall()
        return None if state == "running" else (state, reason)

    found: tuple[str, str] = await federation.until(ended)
    return found


def reasons(federation: DaemonsInMemory) -> list[str]:
    """Why the session has ended at those who hold features, by their own stores."""
    found = []
    for party in ("telco", "retail"):
        path = federation.folder / party / "state" / "fedmq.sqlite"
        with closing(sqlite3.connect(path)) as connection:
            found += [reason for (reason,) in connection.execute("SELECT reason FROM sessions")]
    return found


async def test_whoever_has_all_trees_is_let_finish_again(federation: DaemonsInMemory) -> None:
    assert await went_on(federation, trees=3) == ("finished", "")


async def test_other_terms_are_refused(federation: DaemonsInMemory) -> None:
    state, _ = await went_on(federation, trees=3, max_depth=3)
    assert state == "failed"
    assert any("on other terms" in reason for reason in reasons(federation))


async def test_no_tree_of_a_finished_session_grows_again(federation: DaemonsInMemory) -> None:
    state, reason = await went_on(federation, trees=2)
    assert state == "failed"
    assert "tree 2 grows again, though all parties have saved 3 trees" in reason
    assert "the state of bank is old" in reason
    assert "broke the protocol" not in reason


def trees(count: int) -> tuple[PassiveTree, ...]:
    return tuple(PassiveTree(number, LookupTable.empty(("a",))) for number in range(count))


def test_a_crash_costs_one_tree_and_no_more_are_grown_again() -> None:
    saved = trees(4)
    assert kept_before(4, saved, finished=True, active="bank") == saved
    assert kept_before(3, saved, finished=False, active="bank") == saved[:3]
    with pytest.raises(OldState, match="tree 2 grows again, though all parties have saved 4 trees"):
        kept_before(2, saved, finished=False, active="bank")
    with pytest.raises(OldState, match="tree 3 grows again, though all parties have saved 4 trees"):
        kept_before(3, saved, finished=True, active="bank")
    assert kept_before(0, (), finished=False, active="bank") == ()


def test_terms_are_the_same_under_another_key() -> None:
    other = pack_payload({"n": np.ones(256, np.uint8)})
    assert terms_digest(terms()) == terms_digest(terms(public=other))
    signs = {"a": 1, "b": -1}
    turned = dict(reversed(signs.items()))
    assert terms_digest(terms(signs=signs)) == terms_digest(terms(signs=turned))
    digests = {
        terms_digest(terms(**changes))
        for changes in (
            {},
            {"engine": "plain"},
            {"trees": 11},
            {"max_depth": 4},
            {"max_leaves": 4},
            {"max_bin": 31},
            {"alignment": "other"},
            {"signs": signs},
        )
    }
    assert len(digests) == 8


async def test_consent_is_for_the_terms_of_the_first_attempt(tmp_path: Path) -> None:
    party = consent(tmp_path)
    before = terms_digest(terms())
    await party.training(HEADER, terms(), terms_before=before)
    with pytest.raises(Refused, match=r"telco does not continue session .* on other terms"):
        await party.training(HEADER, terms(max_depth=4), terms_before=before)


async def test_a_session_that_was_forgotten_counts_again_also_over_a_restart(
    tmp_path: Path,
) -> None:
    party = consent(tmp_path, most_trainings_per_day=3)
    await party.training(HEADER, terms(), begins=True)
    await party.training(HEADER, terms())  # it goes on after a crash
    await party.training(HEADER, terms(), begins=True)

    party = consent(tmp_path, most_trainings_per_day=3)
    other = Header(**(HEADER.model_dump() | {"session": "other"}))
    await party.training(other, terms(), begins=True)
    with pytest.raises(Refused, match="takes part in 3 trainings a day at most"):
        await party.training(HEADER, terms(), begins=True)


async def test_the_store_keeps_the_terms_of_the_first_attempt(tmp_path: Path) -> None:
    store = SessionStore(Database(tmp_path / "fedmq.sqlite"))
    await store.database.open()
    for attempt, digest in ((1, "first"), (2, "second")):
        await store.begin(StoredSession("one", "m", attempt, terms=digest))
    found = await store.find("one")
    await store.database.close()
    assert found is not None
    assert (found.attempt, found.terms) == (2, "first")

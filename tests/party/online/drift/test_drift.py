"""Who is scored is compared with who was learned from, and others read of it an alarm alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmq.messages.codec import pack_body
from fedmq.messages.online import OnlineBitmaps, OnlineExits
from fedmq.party.configuration.online import DriftSection
from fedmq.party.online.drift import DriftWatch, DriftWindow
from fedmq.party.store.documents import (
    TrainedCounts,
    delete_model,
    keep_trained_counts,
    scored_counts_path,
)
from tests.party.online.serving_harness import ACTIVE, ServingHarness
from tests.protocol.online.test_online import World

RANDOM = np.random.default_rng(5)
NAMES = ("secret_age", "secret_income")
TRAINED = RANDOM.normal(size=(5000, 2)).astype(np.float32)
BATCH = ("s", 0)


def people(rows: int, shift: float = 0.0) -> NDArray[np.float32]:
    """Rows of whom the second column is shifted."""
    return RANDOM.normal([0, shift], size=(rows, 2)).astype(np.float32)


def watch(state: Path, **section: float) -> DriftWatch:
    return DriftWatch(state, DriftSection.model_validate(section), lambda: {"m"})


@pytest.fixture
def state(tmp_path: Path) -> Path:
    keep_trained_counts(tmp_path, "m", TrainedCounts.of(NAMES, TRAINED, TRAINED[:, 0]))
    return tmp_path


async def test_people_like_those_of_the_training_cause_no_alarm(state: Path) -> None:
    watched = watch(state)
    watched.put_aside("m", people(3000))
    await watched.count()
    assert [(drift.column, drift.rows, drift.alarm) for drift in watched.found] == [
        ("secret_age", 3000, False),
        ("secret_income", 3000, False),
    ]
    assert max(drift.index for drift in watched.found) < 0.03
    assert not watched.shows_alarm


async def test_a_shifted_column_causes_one_and_so_do_shifted_scores(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = watch(state)
    watched.put_aside("m", people(2000, shift=1.0))
    watched.put_aside_scores("m", people(2000, shift=1.0)[:, 1])
    await watched.count()
    alarms = [drift.column for drift in watched.found if drift.alarm]
    assert alarms == ["secret_income", "score"]
    assert watched.shows_alarm
    assert caplog.text.count("drifts: over the last 2000 people") == 2
    await watched.count()
    assert len(caplog.records) == 2  # an alarm is told once


async def test_few_people_say_nothing_and_an_owner_may_keep_its_alarm(state: Path) -> None:
    watched = watch(state, least_rows=100, show_alarm=False)
    watched.put_aside("m", people(99, shift=3))
    await watched.count()
    assert watched.found == ()
    watched.put_aside("m", people(1, shift=3))
    await watched.count()
    assert [drift.alarm for drift in watched.found] == [False, True]
    assert not watched.shows_alarm


async def test_the_window_slides(state: Path) -> None:
    watched = watch(state, rows=1000)
    watched.put_aside("m", people(5000, shift=2))
    await watched.count()
    assert watched.shows_alarm
    watched.put_aside("m", people(1100))
    await watched.count()
    assert {drift.rows for drift in watched.found} == {1000}
    assert not watched.shows_alarm


async def test_counts_of_a_deleted_model_are_not_written_again(state: Path) -> None:
    served = {"m"}
    watched = DriftWatch(state, DriftSection(), lambda: served)
    watched.put_aside("m", people(10))
    await watched.count()
    served.clear()
    delete_model(state, "m")
    await watched.count()
    assert not scored_counts_path(state, "m").exists()


async def test_a_restart_keeps_the_counts_and_another_training_does_not(state: Path) -> None:
    before = watch(state)
    before.put_aside("m", people(1500, shift=1))
    await before.close()
    after = watch(state)
    await after.start()
    assert after.found == before.found
    await after.close()

    keep_trained_counts(state, "m", TrainedCounts.of(NAMES, TRAINED + 1))
    anew = watch(state)
    await anew.start()
    assert anew.found == ()
    await anew.close()


async def test_damaged_counts_are_counted_anew(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scored = scored_counts_path(state, "m")
    scored.write_text("{")
    watched = watch(state, least_rows=1)
    watched.put_aside("m", people(5))
    await watched.close()
    assert "drift is counted anew" in caplog.text
    assert {drift.rows for drift in watched.found} == {5}
    assert json.loads(scored.read_text())["columns"][0][0] == 5  # a test's own file


async def test_a_model_of_an_earlier_version_is_not_watched(tmp_path: Path) -> None:
    watched = watch(tmp_path)
    watched.put_aside("m", people(2000))
    await watched.close()
    assert watched.found == ()
    assert not (tmp_path / "drift").exists()


async def test_nobody_is_counted_twice_in_a_batch_nor_if_unknown(state: Path) -> None:
    watched = watch(state, least_rows=1)
    row_of = {"ann": 0, "bob": 1}
    values = people(3)
    watched.put_aside_asked(BATCH, "m", ["ann", "zoe"], row_of, values)
    watched.put_aside_asked(BATCH, "m", ["ann", "bob"], row_of, values)
    watched.put_aside_asked(("s", 1), "m", ["ann"], row_of, values)
    await watched.count()
    assert {drift.rows for drift in watched.found} == {3}


def test_a_window_is_restored_in_its_own_bins_alone() -> None:
    columns = TrainedCounts.of(NAMES, TRAINED).columns
    window = DriftWindow(columns, 100)
    window.add(people(37))
    again = DriftWindow(columns, 100)
    again.restore(window.saved())
    assert again.indices() == window.indices()
    with pytest.raises(ValueError, match="other bins"):
        DriftWindow(columns[:1], 100).restore(window.saved())


def test_what_is_kept_goes_with_the_model(state: Path) -> None:
    delete_model(state, "m")
    assert list((state / "drift").iterdir()) == []


@pytest.fixture(scope="module")
def world() -> World:
    return World(rows=200, trees=4, depth=3)


@pytest.mark.parametrize("mode", ["hop", "bitmap"])
async def test_the_active_party_reads_an_alarm_and_no_figure(
    world: World, tmp_path: Path, mode: str
) -> None:
    """At telco all people are others than in its training; at the active party they are not."""
    section = DriftSection(least_rows=20)
    watches = {}
    for party in (ACTIVE, *world.shares):
        model = world.model.share.model_id
        watches[party] = DriftWatch(tmp_path / party, section, lambda model=model: {model})
        share = world.model.share if party == ACTIVE else world.shares[party].share
        names = share.lookup_table.feature_names
        values = world.columns[ACTIVE] if party == ACTIVE else world.shares[party].values[:-1]
        shift = 100 if party == "telco" else 0
        counts = TrainedCounts.of(names, values + np.float32(shift))
        keep_trained_counts(tmp_path / party, model, counts)
    harness = ServingHarness(world, mode=mode, drift=watches)  # type: ignore[arg-type]  # a mode
    answers: list[OnlineExits | OnlineBitmaps] = []
    receive = harness.scorer.receive

    def tapped(envelope):  # type: ignore[no-untyped-def]
        answers.append(envelope.body)
        receive(envelope)

    harness.scorer.receive = tapped  # type: ignore[method-assign]  # a tap
    before = await harness.margins(world.ids)
    assert not any(answer.drifts for answer in answers)
    for watched in watches.values():
        await watched.count()
    answers.clear()
    again = await harness.margins(world.ids)

    assert np.array_equal(before, again)
    assert watches[ACTIVE].others["telco"]
    assert not any(drifts for party, drifts in watches[ACTIVE].others.items() if party != "telco")
    assert watches[ACTIVE].status()["parties"] == ["telco"]
    alarmed = [answer for answer in answers if answer.drifts]
    assert alarmed
    for answer in alarmed:
        plain = answer.model_copy(update={"drifts": False})
        extra = len(pack_body(answer)) - len(pack_body(plain))
        assert extra == len("drifts") + 2  # its name, and true

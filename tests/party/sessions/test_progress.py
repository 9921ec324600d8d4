"""How long a session still takes, the curve that it came along, and for which party it waits."""

from __future__ import annotations

import pytest

from fedmq import __version__
from fedmq.party.sessions.sessions import Progress, Status
from fedmq.protocol.events import ConsentPending, Report, Waiting


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_time_that_is_left_follows_the_pace_of_the_last_trees() -> None:
    clock = Clock()
    progress = Progress(clock)
    assert progress.seconds_left is None
    for tree in range(1, 5):
        clock.now += 2
        progress.add(Report(tree, 10, "tree", {}))
    assert progress.seconds_left == 12
    clock.now += 1
    assert progress.seconds_left == 11
    clock.now += 100
    assert progress.seconds_left == 0


def test_a_new_attempt_measures_its_own_pace_and_keeps_the_curve() -> None:
    clock = Clock()
    progress = Progress(clock)
    for tree, loss in ((1, 0.6), (2, 0.5)):
        clock.now += 1
        progress.add(Report(tree, 4, "tree", {"logloss": loss}))
    progress.restart_pace()
    clock.now += 3600
    progress.add(Report(2, 4, "tree", {"logloss": 0.5}))
    assert progress.seconds_left is None
    clock.now += 5
    progress.add(Report(3, 4, "tree", {"logloss": 0.4, "auc": 0.9}))
    assert progress.seconds_left == 5
    assert progress.curve == {
        "done": [1.0, 2.0, 3.0],
        "logloss": [0.6, 0.5, 0.4],
        "auc": [None, None, 0.9],
    }


def test_an_owner_who_thinks_it_over_does_not_slow_the_pace() -> None:
    clock = Clock()
    status = Status("0123", "bank", Progress(clock))
    status.reported(Report(0, 4, "tree", {}))
    clock.now += 3600
    status.consent_awaited(ConsentPending("telco", 0))
    for tree in (1, 2):
        clock.now += 2
        status.reported(Report(tree, 4, "tree", {}))
    assert status.progress.seconds_left == 4


@pytest.mark.parametrize(
    ("release", "words"),
    [
        ("0.0.9", f"; telco runs fedmq 0.0.9, this party fedmq {__version__}: bring both"),
        ("", f"; telco runs an older fedmq, this party fedmq {__version__}: bring both"),
    ],
)
def test_a_wait_for_a_party_of_another_release_names_both(release: str, words: str) -> None:
    status = Status("0123", "bank", releases=lambda: {"telco": release})
    assert words in status.wait(Waiting("telco", 3, 2880), "")


@pytest.mark.parametrize("releases", [{}, {"telco": __version__}, {"retail": "0.0.9"}])
def test_a_wait_for_a_party_of_the_same_release_names_none(releases: dict[str, str]) -> None:
    status = Status("0123", "bank", releases=lambda: releases)
    line = status.wait(Waiting("telco", 3, 2880), "")
    assert line == "waiting for telco (not seen yet, retry 3 of 2880)"

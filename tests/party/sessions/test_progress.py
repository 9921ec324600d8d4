"""How long a session still takes, and the curve that it came along."""

from __future__ import annotations

from fedmq.party.sessions.sessions import Progress
from fedmq.protocol.events import Report


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
    progress.begin_attempt()
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

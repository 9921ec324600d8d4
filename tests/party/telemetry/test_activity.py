"""Who computed and who was waited for: intervals that a clock of ours measures."""

from __future__ import annotations

from fedmq.messages.envelope import Header
from fedmq.party.telemetry.timeline import ACTIVITY_SECONDS, Activity


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def header(sender: str, recipient: str, kind: str, sequence: int = 1) -> Header:
    return Header(
        id="1",
        federation="demo",
        session="s",
        attempt=1,
        sender=sender,
        recipient=recipient,
        sequence=sequence,
        acknowledged=0,
        kind=kind,
    )


def test_a_party_is_waited_for_from_the_first_question_to_its_answer() -> None:
    clock = Clock()
    activity = Activity("bank", clock)
    activity.sent(header("bank", "telco", "gradient broadcast"))
    clock.now += 2
    activity.sent(header("bank", "telco", "histogram request"))
    assert activity.described()["owed"] == {"telco": {"kind": "gradient broadcast", "seconds": 2.0}}
    clock.now += 1
    activity.received(header("telco", "bank", "histogram reply"))
    clock.now += 1
    assert activity.described()["owed"] == {}
    assert activity.described()["busy"] == {"bank": [], "telco": [(4.0, 1.0)]}


def test_an_acknowledgement_is_no_answer() -> None:
    activity = Activity("bank", Clock())
    activity.sent(header("bank", "telco", "histogram request"))
    activity.received(header("telco", "bank", "ack", sequence=0))
    assert list(activity.described()["owed"]) == ["telco"]


def test_computations_that_touch_are_one_interval() -> None:
    clock = Clock()
    activity = Activity("bank", clock)
    for start in range(990, 995):
        activity.computed(start, start + 0.99)
    activity.computed(997, 998)
    assert activity.described()["busy"] == {"bank": [(10.0, 5.01), (3.0, 2.0)]}


def test_a_session_of_days_keeps_minutes() -> None:
    clock = Clock()
    activity = Activity("bank", clock)
    for _ in range(10_000):
        clock.now += 1
        activity.computed(clock.now - 0.5, clock.now)
    intervals = activity.described()["busy"]["bank"]
    assert len(intervals) <= ACTIVITY_SECONDS + 1
    assert max(start for start, _ in intervals) <= ACTIVITY_SECONDS


def test_at_its_end_nobody_is_waited_for() -> None:
    activity = Activity("bank", Clock())
    activity.sent(header("bank", "telco", "tree finished"))
    activity.end()
    assert activity.described()["owed"] == {}

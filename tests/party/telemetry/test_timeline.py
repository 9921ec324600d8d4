from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError
from fedmq.messages.envelope import Header
from fedmq.party.telemetry.timeline import Timeline, check_writable, write_trace
from fedmq.privacy.homomorphic import active as homomorphic_active
from fedmq.privacy.homomorphic import passive as homomorphic_passive
from fedmq.simulation.simulate import simulate


@pytest.fixture(scope="module")
def trace() -> Timeline:
    random = np.random.default_rng(0)
    values = random.normal(size=(9000, 4))
    traced = Timeline()
    with pytest.MonkeyPatch.context() as patch:
        # Many pieces, so that some wait for a worker when the first sum is wanted.
        patch.setattr(homomorphic_active, "_MOST_ROWS_PER_PIECE", 300)
        patch.setattr(homomorphic_passive, "_FEWEST_ROWS", 600)
        simulate(
            active=values[:, :2],
            label=values.sum(axis=1) > 0,
            passive={"telco": values[:, 2:]},
            params=TrainParams(num_boost_round=1, max_depth=2, max_bin=8),
            engine="ou",
            engine_options={"key_bits": 1024, "allow_weak_keys": True},
            workers=2,
            trace=traced,
        )
    return traced


def test_a_talk_turns_round_whenever_the_other_speaks_and_acknowledgements_are_no_speech() -> None:
    talk = Timeline()
    said = [("active", 1), ("active", 2), ("telco", 0), ("telco", 1), ("active", 3), ("telco", 2)]
    for sender, sequence in said:
        other = "telco" if sender == "active" else "active"
        for recipient in (other, "retail"):  # what a third hears is another talk
            header = Header(
                id="x", federation="demo", session="s", attempt=1, sender=sender,
                recipient=recipient, sequence=sequence, acknowledged=0, kind="probe",
            )  # fmt: skip
            talk.sent(header, 100, 0.0)
    assert talk.turns("active", "telco") == talk.turns("telco", "active") == 3
    assert talk.turns("active", "retail") == 0


def test_a_timeline_holds_what_each_party_computed_and_said(
    trace: Timeline, tmp_path: Path
) -> None:
    write_trace(trace.document(), tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    parties = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert set(parties.values()) == {"active", "telco"}
    done = {(parties[e["pid"]], e["name"]) for e in events if e["ph"] == "X"}
    assert {
        ("active", "Encrypt"),
        ("active", "gradient broadcast"),
        ("active", "growing"),
        ("telco", "gradient broadcast"),
        ("telco", "SumRows"),
        ("telco", "receiving"),
    } <= done
    left = {e["id"] for e in events if e["ph"] == "s"}
    arrived = {e["id"] for e in events if e["ph"] == "f"}
    assert arrived
    assert arrived <= left
    assert min(e["dur"] for e in events if e["ph"] == "X") >= 0


def test_sums_begin_before_the_last_row_is_encrypted(trace: Timeline) -> None:
    spans = list(trace.spans())
    encrypted = max(end for _, what, _, end in spans if what == "Encrypt")
    summed = min(start for _, what, start, _ in spans if what == "SumRows")
    assert summed < encrypted


def test_the_time_of_cores_is_told_apart_from_the_time_that_passed(trace: Timeline) -> None:
    passed = sum(end - start for _, what, start, end in trace.spans() if what == "Encrypt")
    assert 0 < trace.busy["active", "Encrypt"] <= passed * 1.05


def test_a_timeline_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        check_writable(tmp_path / "nowhere" / "trace.json")

"""``fedmq trace join``: the timelines that each party's owner hands over become one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.params import TrainParams
from fedmq.party.telemetry.timeline import Timeline, write_trace
from fedmq.simulation.simulate import simulate
from tests.cli.command import fedmq


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    values = np.random.default_rng(0).normal(size=(300, 4))
    traced = Timeline()
    simulate(
        active=values[:, :2],
        label=values.sum(axis=1) > 0,
        passive={"telco": values[:, 2:]},
        params=TrainParams(num_boost_round=1, max_depth=2, max_bin=8),
        engine="plain",
        trace=traced,
    )
    return traced.document()


@pytest.fixture
def files(whole: dict[str, Any], tmp_path: Path) -> list[Path]:
    """What each party's own daemon would have written."""
    events = whole["traceEvents"]
    parties = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
    paths = []
    for party, number in parties.items():
        own = [event for event in events if event["pid"] == number]
        paths.append(tmp_path / f"{party}.json")
        write_trace({"displayTimeUnit": "ms", "traceEvents": own}, paths[-1])
    return paths


def test_the_files_of_all_parties_become_the_timeline_of_all(
    whole: dict[str, Any], files: list[Path], tmp_path: Path
) -> None:
    outcome = fedmq("trace", "join", *files, "-o", tmp_path / "both.json", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.result["parties"] == ["active", "telco"]
    assert outcome.result["arrows"] > 5
    joined = json.loads((tmp_path / "both.json").read_text())["traceEvents"]
    key = json.dumps
    assert sorted(joined, key=key) == sorted(whole["traceEvents"], key=key)


def test_clocks_that_differ_are_told(files: list[Path], tmp_path: Path) -> None:
    late = json.loads(files[0].read_text())
    for event in late["traceEvents"]:
        if "ts" in event:
            event["ts"] += 60_000_000
    files[0].write_text(json.dumps(late))
    outcome = fedmq("trace", "join", *files, "-o", tmp_path / "both.json")
    assert outcome.code == 0, outcome.err
    assert "clocks differ by 59" in outcome.out


def test_one_file_twice_and_files_of_other_kinds_are_refused(
    files: list[Path], tmp_path: Path
) -> None:
    out = ("-o", tmp_path / "both.json")
    twice = fedmq("trace", "join", files[0], files[0], *out)
    assert twice.code == 4
    assert "active is in" in twice.err
    for content in ("", "[]", '{"traceEvents": [1]}', '{"traceEvents": [{"ph": 1, "pid": 2}]}'):
        files[1].write_text(content)
        outcome = fedmq("trace", "join", *files, *out)
        assert outcome.code == 4
        assert "telco.json: not a timeline of fedmq" in outcome.err
    assert fedmq("trace", "join", tmp_path / "absent.json", *out).code == 4
    assert not (tmp_path / "both.json").exists()

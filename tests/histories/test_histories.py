"""Machines decide today as they did when the histories were recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fedmq.protocol.online.options import Mode
from fedmq.protocol.training.active_growth import ActiveGrowth
from tests.histories.history import FOLDER, replay
from tests.histories.online import MODES, replay_online
from tests.histories.scenes import SCENES


@pytest.mark.parametrize("name", SCENES)
def test_every_event_has_the_effects_on_file(name: str) -> None:
    builds, _ = SCENES[name]
    for where, recorded, today in replay(name, builds()):
        assert today == recorded, where


@pytest.mark.parametrize("mode", MODES)
def test_every_event_of_an_online_batch_has_the_effects_on_file(mode: Mode) -> None:
    for where, recorded, today in replay_online(mode):
        assert today == recorded, where


@pytest.mark.parametrize("mode", MODES)
def test_a_history_of_an_online_batch_is_complete(mode: Mode) -> None:
    text = (FOLDER / f"online-{mode}.jsonl").read_text()
    for party in ("telco", "retail"):
        assert f'"party":"{party}"' in text
    assert text.count('["answer",') == 2
    assert '["timer","' in text  # a question was lost
    assert text.count('["finish",') == 1


@pytest.mark.parametrize("name", SCENES)
def test_a_history_is_complete(name: str) -> None:
    lines = (FOLDER / f"{name}.jsonl").read_text()
    for party in ("bank", "telco", "retail"):
        assert f'"party":"{party}"' in lines
    assert lines.count('["finish",') >= 3


def test_the_crashes_are_in_the_history() -> None:
    text = (FOLDER / "training-with-crashes.jsonl").read_text()
    begun = [json.loads(line)["begun"] for line in text.splitlines() if '"begun"' in line]
    assert {life["party"] for life in begun if life["saved"]} == {"bank", "telco", "retail"}


def test_the_bad_link_is_in_the_history() -> None:
    text = (FOLDER / "alignment-over-a-bad-link.jsonl").read_text()
    assert '["timer","resend:' in text
    assert '["waiting",' in text


def test_a_machine_that_decides_differently_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    builds, _ = SCENES["training"]
    begin = ActiveGrowth.begin

    def other_way_round(self: Any) -> None:
        self._asked = tuple(reversed(self._asked))
        begin(self)
        self._asked = tuple(reversed(self._asked))

    monkeypatch.setattr(ActiveGrowth, "begin", other_way_round)
    assert any(today != recorded for _, recorded, today in replay("training", builds()))

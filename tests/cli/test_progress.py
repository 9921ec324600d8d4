from __future__ import annotations

import re
import time

import pytest

from fedmq.cli.progress import ProgressBar


def test_plain_lines_tell_time_what_is_known_and_for_whom_it_waits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ProgressBar("training, trees", "tree") as bar:
        bar.show(0, 4, note="waiting for telco")
        bar.show(1, 4, {"train-auc": 0.5})
        bar.show(1, 4, {"train-auc": 0.5})
        bar.show(2, None)
    waiting, first, second = capsys.readouterr().err.splitlines()
    assert waiting == "training, trees 0/4  waiting for telco"
    told = r"training, trees 1/4  \d+\.\d s, about \d+\.\d s left  train-auc 0\.50000"
    assert re.fullmatch(told, first)
    assert second == "training, trees 2/?"


def test_what_was_done_before_says_nothing_of_the_time_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ProgressBar("training, trees", "tree") as bar:
        bar.show(30, 1030)
        time.sleep(0.02)
        bar.show(31, 1030)
    met, next_one = capsys.readouterr().err.splitlines()
    assert met == "training, trees 30/1030"
    seconds = re.search(r"about ([0-9.]+) s left", next_one)
    assert seconds is not None
    assert float(seconds[1]) > 0.02 * 900


def test_the_wait_for_a_consent_says_nothing_of_the_time_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ProgressBar("training, trees", "tree") as bar:
        bar.show(0, 2)
        time.sleep(0.3)
        bar.show(0, 2, note="waits for telco's consent")
        bar.show(1, 2)
    seconds = re.search(r"about ([0-9.]+) s left", capsys.readouterr().err)
    assert seconds is not None
    assert float(seconds[1]) < 0.2


def test_quiet_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("training, trees", "tree", quiet=True) as bar:
        bar.show(1, 2)
    assert capsys.readouterr() == ("", "")


def test_output_is_left_to_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("training, trees", "tree") as bar:
        bar.show(1, 2)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("width", [45, 80, 130])
def test_a_terminal_shows_what_matters_first_and_cuts_none_of_it(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"COLUMNS": str(width), "FORCE_COLOR": "1", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    with ProgressBar("training, trees", "tree") as bar:
        bar.show(11, 50)
        time.sleep(0.02)
        metrics = {"train-logloss": 0.5, "train-auc": 0.9, "eval-logloss": 0.6, "eval-auc": 0.761}
        bar.show(12, 50, metrics, "waiting for telco")
    lines = [
        re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line).strip()
        for line in capsys.readouterr().err.replace("\r", "\n").splitlines()
    ]
    last = [line for line in lines if line][-1]
    assert re.match(r"tree 12/50 · 0:0[0-9] left · eval-auc 0\.76100", last)
    assert max(map(len, lines)) <= width
    assert ("waiting for telco" in last) == (width >= 80)
    assert ("━" in last) == (width >= 80)
    assert ("train-logloss" in last) == (width >= 130)

"""Whoever begins gets things wrong: each in one line that says where, and what to do."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from fedmq.cli.main import main
from tests.cli.command import fedmq
from tests.cli.mistake import Mistake
from tests.cli.mistakes import MISTAKES


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fresh") / "federation"
    parties = ("--active", "bank", "--passive", "telco", "--broker", "127.0.0.1:1")
    assert fedmq("init", folder, *parties, "--example").code == 0
    return folder


def test_there_are_a_hundred_and_more_of_them() -> None:
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES) >= 140


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_one_line_that_says_where_and_what_to_do(
    mistake: Mistake,
    fresh: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "federation"
    shutil.copytree(fresh, folder)
    mistake.edit(folder)
    if mistake.typed[0] == "run":  # sets up its process's log and signals
        outcome = fedmq(*mistake.typed, cwd=folder)
        code, err = outcome.code, outcome.err
    else:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["fedmq", *mistake.typed])
        with pytest.raises(SystemExit) as ended:
            main()
        code, err = ended.value.code, capsys.readouterr().err
    lines = [line for line in err.splitlines() if line.startswith("fedmq: ")]
    assert (code, len(lines)) == (mistake.code, 1), err
    assert err.splitlines()[-1] == lines[0]
    assert "Traceback" not in err
    for words in mistake.words:
        assert words in lines[0]

"""What a cross-validation prints: a row for each round, or for some of many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedmq.cli.train import cross_validated_in_words
from tests.cli.command import fedmq


def shown(rounds: int, **changes: Any) -> list[str]:
    result = {
        "cross_validation": "credit-cv",
        "folds": 5,
        "rounds": rounds,
        "best_iteration": None,
        "figures": {
            "test-auc-mean": [0.7 + 0.001 * number for number in range(rounds)],
            "test-auc-std": [0.01] * rounds,
        },
        "seconds": 12.34,
        "bytes_sent": 5_600_000,
        "epsilon_spent": None,
        **changes,
    }
    return cross_validated_in_words(result).plain.splitlines()


def test_each_round_has_a_row() -> None:
    assert shown(2) == [
        "ROUND  TEST-AUC",
        "    0  0.70000 ± 0.01000",
        "    1  0.70100 ± 0.01000",
        "cross-validation credit-cv: 5 folds of 2 rounds in 12.3 s, 5.6 MB sent",
    ]


def test_of_many_rounds_some_are_left_out_but_not_the_first_nor_the_last() -> None:
    _, first, *_, last, words = shown(300, best_iteration=299, epsilon_spent=8.0)
    assert first.split()[0] == "0"
    assert last.split()[0] == "299"
    assert len(shown(300)) == 22
    assert words.endswith("5.6 MB sent, epsilon 8 spent in all; best round 299")


def test_a_figure_that_is_none_is_said_to_be() -> None:
    figures = {"test-auc-mean": [None], "test-auc-std": [None]}
    assert shown(1, figures=figures)[1] == "    0  none ± none"


def test_a_setting_is_a_name_and_a_value(tmp_path: Path) -> None:
    for wrong, line in (("eta", "write NAME=VALUE"), ("=1", "write NAME=VALUE")):
        done = fedmq("train", tmp_path / "train.toml", "--set", wrong)
        assert done.code == 2
        assert line in done.err
    twice = fedmq("cv", tmp_path / "train.toml", "--set", "eta=1", "--set", "eta=2")
    assert "eta is given twice" in twice.err

"""A search tries what daemons cross-validate, and ends with the best that it tried."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError
from fedmq.party.configuration.job import TrainingJob
from fedmq.workbench.search import Choice, Range, search, space_named, space_of
from tests.cli.command import fedmq as command
from tests.party.daemons_in_memory import DaemonsInMemory


def job(**params: Any) -> TrainingJob:
    return TrainingJob(params=TrainParams(**params))


def test_a_space_is_read_from_texts() -> None:
    assert space_of(["max_depth=3:8", "eta=0.01:0.3:log", "max_bin=32,64", "objective=a,b"]) == {
        "max_depth": Range(3, 8),
        "eta": Range(0.01, 0.3, log=True),
        "max_bin": Choice((32, 64)),
        "objective": Choice(("a", "b")),
    }


def test_a_space_of_a_program_has_texts_and_lists() -> None:
    over = {"eta": "0.01:0.3:log", "max_depth": [3, 4], "objective": "a,b"}
    assert space_named(over) == {
        "eta": Range(0.01, 0.3, log=True),
        "max_depth": Choice((3, 4)),
        "objective": Choice(("a", "b")),
    }
    with pytest.raises(ConfigError, match=r"^eta: a single value is no choice; give it as a param"):
        space_named({"eta": [0.1]})
    with pytest.raises(ConfigError, match=r"^there is nothing to search"):
        space_named({})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("eta", "'eta': write NAME=LOW:HIGH, NAME=LOW:HIGH:log or NAME=A,B,C"),
        ("eta=0.3:0.1", "'eta=0.3:0.1': 0.3 is not below 0.1"),
        ("eta=0:1:log", "'eta=0:1:log': a range by logarithms begins above 0"),
        ("eta=low:high", "'eta=low:high': write NAME=LOW:HIGH, or NAME=LOW:HIGH:log"),
        ("eta=0.1", "'eta=0.1': a single value is no choice; give it with --set"),
    ],
)
def test_a_range_that_cannot_be_read_is_named(text: str, line: str) -> None:
    with pytest.raises(ConfigError, match=f"^{line}"):
        space_of([text])


@pytest.mark.parametrize("metric", ["auc", "logloss"])
def test_the_best_is_what_the_metric_wants(metric: str) -> None:
    def cross_validate(settings: Mapping[str, Any]) -> dict[str, list[float]]:
        return {f"test-{metric}-mean": [5.0, settings["max_depth"], 3.0]}

    space = space_of(["max_depth=2:9"])
    found = search(job(eval_metric=("error", metric)), space, 25, cross_validate)
    assert len(found.trials) == 25
    values = [trial.value for trial in found.trials]
    assert found.best.value == (max(values) if metric == "auc" else min(values))
    again = search(job(eval_metric=("error", metric)), space, 25, cross_validate)
    assert again == found


def test_a_callers_metric_is_not_searched_by() -> None:
    with pytest.raises(ConfigError, match="custom_metric: a search watches a metric of eval_metr"):
        search(TrainingJob(custom_metric="own"), space_of(["eta=0:1"]), 1, lambda _: {})


async def test_the_command_searches_and_says_what_to_train(federation: DaemonsInMemory) -> None:
    path = federation.folder / "bank" / "train.toml"
    path.write_text(
        'model = "m"\nengine = "plain"\n[params]\nnum_boost_round = 2\nmax_bin = 8\n'
        'eval_metric = ["logloss", "auc"]\n'
    )
    words = ["--over", "max_depth=1:3", "--over", "eta=0.1,0.5", "--trials", 3, "--nfold", 2]
    done = await asyncio.to_thread(command, "search", path, *map(str, words))
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].split() == ["MAX_DEPTH", "ETA", "AUC"]
    assert len(done.out.splitlines()) == 4
    assert f"next: fedmq train {path} --set max_depth=" in done.err
    assert federation.models()["bank"] == []
    wrong = await asyncio.to_thread(command, "search", path, "--over", "ete=1:2", "--trials", "1")
    assert wrong.code == 3
    assert wrong.error == f"{path}: params: ete: no such parameter; did you mean eta?"
    both = await asyncio.to_thread(command, "search", path, "--over", "eta=0:1", "--set", "eta=1")
    assert both.error == "eta is given by --over and by --set; give one of them"

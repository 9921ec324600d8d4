"""A party file that names several labels: they are learned at once, and each has its scores."""

from __future__ import annotations

import asyncio
import csv
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError, DaemonError
from fedmq.estimators.daemons import DaemonTraining
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.configuration.party import PartyFile
from fedmq.party.operations.control import request_daemon
from fedmq.workbench.evaluation import Evaluation, Wanted, evaluate_model
from tests.cli.command import fedmq
from tests.party.daemons_in_memory import DaemonsInMemory


def evaluated(party: Path, wanted: Wanted) -> Evaluation | ConfigError:
    """What an evaluation at the bank finds, or why there is none."""
    config, _ = PartyFile.read(party)
    try:
        return evaluate_model(
            party, config, "bank", "m", wanted, partial(request_daemon, config.state)
        )
    except ConfigError as error:
        return error


async def test_each_label_has_a_column_of_scores_and_of_held_out_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = DaemonsInMemory(tmp_path, monkeypatch)
    party, output = federation.folder / "bank" / "party.toml", tmp_path / "scores.csv"
    party.write_text(party.read_text().replace('label = "label"', 'label = ["label", "x1"]'))
    (tmp_path / "ids.csv").write_text("id\np00\np01\np02\n")
    params = TrainParams(objective="reg:squarederror", num_boost_round=1, max_depth=2)
    job = TrainingJob(model="m", engine="plain", evaluation=0.2, params=params)
    hazards = TrainingJob(model="n", engine="plain", params=TrainParams(objective="survival:cox"))
    with pytest.raises(ConfigError, match="an estimator learns one label of daemons"):
        DaemonTraining(party, None)
    async with federation:
        done = await federation.ask("bank", "train", job=job.model_dump(mode="json"))
        assert done["trees"] == 2
        words = ("predict", party, tmp_path / "ids.csv", "--output", output)
        scored = await asyncio.to_thread(fedmq, *words)
        assert scored.code == 0, scored
        every = federation.folder / "bank" / "data.csv"
        held, whole, one, group = [
            await asyncio.to_thread(evaluated, party, Wanted(samples=0, **wanted))
            for wanted in (
                {},
                {"rows": every},
                {"rows": every, "label": "label"},
                {"rows": every, "group": "telco.x0"},
            )
        ]
        with pytest.raises(DaemonError, match="num_target = 2: survival:cox learns one label a"):
            await federation.ask("bank", "train", job=hazards.model_dump(mode="json"))
    with output.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "score_0", "score_1", "reason"]
    held_out = federation.folder / "bank" / "state" / "models" / "m.held-out.csv"
    with held_out.open() as file:
        kept = list(csv.DictReader(file))
    with (federation.folder / "bank" / "data.csv").open() as file:
        people = {row["id"]: row for row in csv.DictReader(file)}
    assert list(kept[0]) == ["id", "set", "label_0", "label_1"]
    for row in kept:
        assert float(row["label_0"]) == float(people[row["id"]]["label"])
        assert np.float32(row["label_1"]) == np.float32(people[row["id"]]["x1"])
    assert isinstance(held, Evaluation) and isinstance(whole, Evaluation)
    assert (len(held.rows), len(whole.rows)) == (len(kept), 40)
    assert "predicts 2 labels" in str(one)
    assert "need one label of 0 and 1" in str(group)
    whole.write(tmp_path / "every")
    with (tmp_path / "every" / "scores.csv").open() as file:
        scores = list(csv.DictReader(file))
    assert list(scores[0]) == ["id", "set", "label_0", "label_1", "score_0", "score_1"]
    for name, number in (("label", 0), ("x1", 1)):
        errors = [float(row[f"label_{number}"]) - float(row[f"score_{number}"]) for row in scores]
        rmse = whole.metrics[f"rmse of {name}"]
        assert rmse == pytest.approx(np.sqrt(np.mean(np.square(errors))))


async def test_quantiles_of_held_out_rows_have_loss_and_coverage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = DaemonsInMemory(tmp_path, monkeypatch)
    party, output = federation.folder / "bank" / "party.toml", tmp_path / "report"
    learned = TrainParams(
        objective="reg:quantileerror",
        quantile_alpha=(0.25, 0.75),
        num_boost_round=2,
        max_depth=2,
    )
    job = TrainingJob(model="m", engine="plain", evaluation=0.3, params=learned)
    async with federation:
        await federation.ask("bank", "train", job=job.model_dump(mode="json"))
        words = ("evaluate", party, "m", "-o", output, "--json")
        run = await asyncio.to_thread(fedmq, *words)
    assert run.code == 0, run
    metrics = json.loads(run.out)["metrics"]
    with (output / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "set", "label", "score_0", "score_1"]
    label = np.array([float(row["label"]) for row in rows])
    for place, alpha in enumerate((0.25, 0.75)):
        score = np.array([float(row[f"score_{place}"]) for row in rows])
        covered = metrics[f"coverage at {alpha}"]["value"]
        assert covered == pytest.approx((label <= score).mean())
        loss = np.where(label >= score, alpha * (label - score), (1 - alpha) * (score - label))
        assert metrics[f"pinball loss at {alpha}"]["value"] == pytest.approx(loss.mean())
    assert "coverage at 0.75" in (output / "report.html").read_text()

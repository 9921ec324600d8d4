"""``fedmq predict`` beside running daemons: a column of scores for each class."""

from __future__ import annotations

import asyncio
import csv
from pathlib import Path

import pytest

from fedmq.boosting.params import TrainParams
from fedmq.party.configuration.job import TrainingJob
from tests.cli.command import fedmq
from tests.party.daemons_in_memory import DaemonsInMemory


@pytest.mark.parametrize("strategy", ["one_output_per_tree", "multi_output_tree"])
async def test_a_file_of_scores_has_a_column_for_each_class(
    federation: DaemonsInMemory, tmp_path: Path, strategy: str
) -> None:
    params = TrainParams(
        objective="multi:softprob",
        num_class=3,
        multi_strategy=strategy,
        num_boost_round=2,
        max_depth=2,
        max_bin=8,
    )
    job = TrainingJob(model="m", engine="plain", params=params)
    await federation.ask("bank", "train", job=job.model_dump(mode="json"))
    party, output = federation.folder / "bank" / "party.toml", tmp_path / "scores.csv"
    with (federation.folder / "bank" / "data.csv").open() as file:
        ids = [row["id"] for row in csv.DictReader(file)][:20]
    (tmp_path / "ids.csv").write_text("\n".join(["id", *ids, "nobody"]))
    for _ in range(2):  # a file of scores may be written again
        words = ("predict", party, tmp_path / "ids.csv", "--output", output)
        done = await asyncio.to_thread(fedmq, *words)
        assert done.code == 0, done
    with output.open() as file:
        *rows, nobody = csv.DictReader(file)
    classes = ["score_0", "score_1", "score_2"]
    assert list(nobody) == ["id", *classes, "reason"]
    assert [row["id"] for row in rows] == ids
    for row in rows:
        assert sum(float(row[name]) for name in classes) == pytest.approx(1)
    assert [nobody[name] for name in classes] == ["", "", ""]
    assert nobody["reason"].startswith("unknown at")

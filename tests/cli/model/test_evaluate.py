"""``fedmq evaluate`` beside running daemons: the held-out rows, or a file of labels."""

from __future__ import annotations

import asyncio
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from fedmq.boosting.params import TrainParams
from fedmq.party.configuration.job import TrainingJob
from tests.cli.command import Outcome, fedmq
from tests.party.daemons_in_memory import DaemonsInMemory


async def train(federation: DaemonsInMemory, **changes: Any) -> None:
    params = TrainParams(
        num_boost_round=3, max_depth=2, max_bin=8, eval_metric=("auc", "logloss"), base_score=0.5
    )
    job = TrainingJob.model_validate({"model": "m", "engine": "plain", "params": params, **changes})
    await federation.ask("bank", "train", job=job.model_dump(mode="json"))


async def evaluate(federation: DaemonsInMemory, *words: str | Path) -> Outcome:
    bank = federation.folder / "bank" / "party.toml"
    return await asyncio.to_thread(fedmq, "evaluate", bank, *words)


async def test_the_held_out_rows_are_evaluated_as_the_training_saw_them(
    federation: DaemonsInMemory, tmp_path: Path
) -> None:
    await train(federation, evaluation=0.5, split="stratified")
    done = (await evaluate(federation, "-o", tmp_path / "out", "--samples", "20", "--json")).result
    [model] = await federation.ask("bank", "models")
    metrics = {name: figure["value"] for name, figure in done["metrics"].items()}
    assert metrics["auc"] == pytest.approx(model["metrics"]["eval-auc"])
    assert metrics["log loss"] == pytest.approx(model["metrics"]["eval-logloss"], rel=1e-5)

    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["metrics"]["auc"]["value"] == metrics["auc"]
    assert "<h1>m</h1>" in (tmp_path / "out" / "report.html").read_text()
    with (tmp_path / "out" / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    label = np.array([float(row["label"]) for row in rows])
    score = np.array([float(row["score"]) for row in rows])
    assert len(rows) == done["rows"] == 21  # half of each class, rounded up
    assert roc_auc_score(label, score) == pytest.approx(metrics["auc"])
    assert log_loss(label, score) == pytest.approx(metrics["log loss"])
    assert {row["set"] for row in rows} == {"eval"}


async def test_rows_start_where_the_training_had_them_start(
    federation: DaemonsInMemory, tmp_path: Path
) -> None:
    await federation.stop("bank")
    data, config = (federation.folder / "bank" / name for name in ("data.csv", "party.toml"))
    head, *lines = data.read_text().splitlines()
    offsets = [f"{line},{number % 7 - 3}" for number, line in enumerate(lines)]
    data.write_text("\n".join([f"{head},offset", *offsets]) + "\n")
    roles = 'label = "label"\nbase_margin = "offset"\n'
    config.write_text(config.read_text().replace('label = "label"\n', roles))
    await federation.start("bank")
    await train(federation, evaluation=0.5, split="stratified")
    words = ("--base-margin", "offset", "--samples", "0", "--json")
    done = (await evaluate(federation, "-o", tmp_path / "out", *words)).result
    [model] = await federation.ask("bank", "models")
    assert done["metrics"]["auc"]["value"] == pytest.approx(model["metrics"]["eval-auc"])
    without = (await evaluate(federation, "-o", tmp_path / "out", *words[2:])).result
    assert without["metrics"]["auc"]["value"] != done["metrics"]["auc"]["value"]

    # The same numbers in a file of ids, for the ids that it has.
    ids = [line.split(",")[0] for line in offsets]
    (tmp_path / "ids.csv").write_text(
        "\n".join(["id,start", *(f"{name},{place % 7 - 3}" for place, name in enumerate(ids))])
    )
    (tmp_path / "bare.csv").write_text("\n".join(["id", *ids, "nobody"]))
    asked = {"ids.csv": "start", "bare.csv": "offset"}
    scores = []
    for file, column in asked.items():
        output = tmp_path / f"scores-{file}"
        words = ("predict", config, tmp_path / file, "-o", output, "--base-margin", column)
        assert (await asyncio.to_thread(fedmq, *words)).code == 0
        scores.append(output.read_text().splitlines()[:41])
    assert scores[0] == scores[1]
    words = ("predict", config, tmp_path / "bare.csv", "-o", tmp_path / "s.csv", "--base-margin")
    failed = await asyncio.to_thread(fedmq, *words, "wages")
    assert (failed.code, "there is no column 'wages'" in failed.err) == (4, True)


async def test_a_file_of_labels_is_evaluated_by_group_and_unknown_ids_are_left_out(
    federation: DaemonsInMemory, tmp_path: Path
) -> None:
    await train(federation)
    file = tmp_path / "later.csv"
    lines = [f"p{row:02},{row % 2},{'north' if row < 20 else 'south'}" for row in range(40)]
    file.write_text("\n".join(["id,default,town", *lines, "nobody,1,north"]) + "\n")
    words = ("m", "-o", tmp_path / "out", "--rows", file, "--label", "default", "--group", "town")
    done = await evaluate(federation, *words, "--smallest-group", "5", "--samples", "0")
    assert done.code == 0, done.err
    assert "m on 40 rows, 1 had no score" in done.out
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    groups = next(table for table in report["tables"] if table["name"] == "Groups of town")
    assert [row[:2] for row in groups["rows"]] == [["north", 20], ["south", 20]]


async def test_groups_come_from_the_active_party_s_own_columns_too(
    federation: DaemonsInMemory, tmp_path: Path
) -> None:
    data = federation.folder / "bank" / "data.csv"
    head, *lines = data.read_text().splitlines()
    towns = [f"{line},{'north' if number % 2 else 'south'}" for number, line in enumerate(lines)]
    data.write_text("\n".join([f"{head},town", *towns]) + "\n")
    await federation.stop()
    party = federation.folder / "bank" / "party.toml"
    party.write_text(party.read_text().replace("[policy]", 'ignore = ["town"]\n[policy]', 1))
    await federation.start()
    await train(federation, evaluation=0.5, split={"group": "town"})
    out = tmp_path / "out"
    done = await evaluate(federation, "-o", out, "--group", "town", "--samples", "0")
    assert done.code == 0, done.err
    report = json.loads((out / "report.json").read_text())
    groups = next(table for table in report["tables"] if table["name"] == "Groups of town")
    assert len(groups["rows"]) == 1  # the split left the other town whole to the training


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("-o", "out"), 4, "model 'm' has no held-out rows"),
        (("-o", "nowhere/out"), 3, "there is no folder nowhere; make it first"),
        (("-o", "ids.csv"), 3, "ids.csv: is a file; name a folder"),
        (("-o", "out", "--rows", "ids.csv"), 4, "there is no column 'label'"),
        (("-o", "out", "--rows", "odd.csv"), 4, "odd.csv, line 3, column 'label': 'yes'"),
        (("-o", "out", "--rows", "one.csv"), 4, "all 2 rows have the label 1"),
        (("other", "-o", "out"), 4, "model 'other' has no share here"),
    ],
    ids=["nothing held out", "no folder", "a file", "no label", "a word", "one class", "no model"],
)
async def test_what_cannot_be_evaluated_is_said_in_a_line(
    federation: DaemonsInMemory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    code: int,
    error: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {"ids": "id\np01\n", "odd": "id,label\np01,1\np02,yes\n"}
    for name, text in {**files, "one": "id,label\np01,1\np02,1\n"}.items():
        (tmp_path / f"{name}.csv").write_text(text)
    await train(federation)
    done = await evaluate(federation, *words)
    assert done.code == code, done.err
    assert error in done.error
    assert not (tmp_path / "out").exists()

"""``fedmq predict --explain`` beside running daemons: columns that add up to the raw score."""

from __future__ import annotations

import asyncio
import csv
from pathlib import Path

import pytest

from fedmq.boosting.params import TrainParams
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.store.documents import ModelStore
from tests.cli.command import Outcome, fedmq
from tests.party.daemons_in_memory import DaemonsInMemory


async def explained(
    folder: Path, monkeypatch: pytest.MonkeyPatch, settings: str, **params: object
) -> tuple[DaemonsInMemory, Outcome, Path]:
    """A federation that trains a model and explains 20 people, and a stranger."""
    federation = DaemonsInMemory(folder, monkeypatch, settings)
    await federation.start()
    try:
        held = TrainParams.model_validate(
            {"num_boost_round": 3, "max_depth": 3, "max_bin": 8, **params}
        )
        job = TrainingJob(model="m", engine="plain", params=held)
        await federation.ask("bank", "train", job=job.model_dump(mode="json"))
        with (folder / "bank" / "data.csv").open() as file:
            ids = [row["id"] for row in csv.DictReader(file)][:20]
        (folder / "ids.csv").write_text("\n".join(["id", *ids, "nobody"]))
        output = folder / "scores.csv"
        words = ("predict", folder / "bank" / "party.toml", folder / "ids.csv", "--explain")
        for _ in range(2):  # a file of scores may be written again
            done = await asyncio.to_thread(fedmq, *words, "--margin", "--output", output)
        return federation, done, output
    finally:
        await federation.stop()


@pytest.mark.parametrize("explain", ["party", "column"])
async def test_what_everybody_added_stands_beside_each_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, explain: str
) -> None:
    _, done, output = await explained(tmp_path, monkeypatch, f'explain = "{explain}"\n')
    assert done.code == 0, done
    with output.open() as file:
        *rows, nobody = csv.DictReader(file)
    _, score, reason, *players, bias = nobody
    assert (score, reason, bias) == ("score", "reason", "bias")
    share = ModelStore(tmp_path / "bank" / "state").active("m")
    expected = [f"bank.{name}" for name in share.lookup_table.feature_names]
    for party in share.asked:
        table = ModelStore(tmp_path / party / "state").passive("m").lookup_table
        used = len(set(table.feature.tolist()))
        expected += [party] if explain == "party" else [f"{party}.{n}" for n in range(used)]
    assert players == expected
    assert share.asked
    for row in rows:
        added = sum(float(row[player]) for player in (*players, bias))
        assert added == pytest.approx(float(row["score"]), abs=1e-5)
    assert {nobody[player] for player in (*players, bias)} == {""}
    assert any(float(row[player]) for row in rows for player in players if "bank" not in player)


async def test_of_classes_there_is_a_column_for_each_player_and_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, done, output = await explained(
        tmp_path, monkeypatch, "", objective="multi:softprob", num_class=3
    )
    assert done.code == 0, done
    with output.open() as file:
        first, *_ = csv.DictReader(file)
    for number in range(3):
        added = [
            float(cell)
            for name, cell in first.items()
            if name.endswith(f"_{number}") and not name.startswith("score")
        ]
        assert sum(added) == pytest.approx(float(first[f"score_{number}"]), abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "params", "words"),
    [
        ('explain = "none"\n', {}, "does not contribute to reasons for scores"),
        ('[online]\nmodes = ["hop"]\n', {}, "modes of its [online] lack bitmap"),
        (
            "",
            {"objective": "multi:softprob", "num_class": 3, "multi_strategy": "multi_output_tree"},
            "trees of vector leaves have no contributions",
        ),
    ],
    ids=["none", "hop", "vector leaves"],
)
async def test_where_reasons_are_not_to_be_had_one_line_says_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: str,
    params: dict[str, object],
    words: str,
) -> None:
    _, done, output = await explained(tmp_path, monkeypatch, settings, **params)
    assert done.code in (3, 6), done
    assert words in done.err
    assert not output.exists()

"""People whom telco lacks: trained on, and scored alike in files, online and in an evaluation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedmq.errors import DaemonError
from fedmq.evaluation.evaluate import ScoredRows
from fedmq.party.configuration.job import AlignmentJob, TrainingJob
from fedmq.party.operations.control import request_daemon
from fedmq.party.store.documents import held_out_rows
from fedmq.workbench.evaluation import scored_rows
from tests.boosting.tables import pooled
from tests.party.daemons_in_memory import DaemonsInMemory

UNKNOWN = [f"p{row:03}" for row in range(60, 120)]
EVERYBODY = [f"p{row:03}" for row in range(120)]
RATE = 0.2  # of the people whom telco lacks
TOLERANCE = 0.1  # 60 people


def write_tables(folder: Path, everybody: list[str] = EVERYBODY) -> None:
    """Telco's column says nearly all about its half of them; the others default seldom."""
    random, people = np.random.default_rng(8), len(everybody)
    x = random.normal(size=people)
    label = (x > -0.8).astype(int)  # of telco's people four of five
    label[people // 2 :] = np.arange(people // 2) % 5 == 0
    lines: Mapping[str, list[str]] = {
        "bank": ["id,label,x0"],
        "telco": ["id,x0"],
        "retail": ["id,x0"],
    }
    for row, name in enumerate(everybody):
        lines["bank"].append(f"{name},{label[row]},{random.normal()}")
        lines["retail"].append(f"{name},{random.normal()}")
        if row < people // 2:
            lines["telco"].append(f"{name},{x[row]}")
    for party, written in lines.items():
        (folder / party / "data.csv").write_text("\n".join(written) + "\n")


async def made(demo: DaemonsInMemory, join: str, fallback: bool = False) -> None:
    """A model of an alignment, in production."""
    align = AlignmentJob(name="people", join=join)
    await demo.ask("bank", "align", job=align.model_dump(mode="json"))
    params = {"num_boost_round": 8, "max_depth": 3, "max_bin": 16, "min_child_weight": 0.5}
    job = TrainingJob(
        model="m",
        engine="plain",
        alignment="people",
        evaluation=0.3,
        fallback=fallback,
        params={**params, "eta": 0.8},
    )
    await demo.ask("bank", "train", job=job.model_dump(mode="json"))
    await demo.ask("bank", "activate", model="m", name="production", mode=None)


async def scored(demo: DaemonsInMemory, ids: list[str]) -> list[Any]:
    answer = await demo.ask("bank", "predict", model="m", ids=ids, strict=False)
    return list(answer["scores"])


async def test_directions_that_are_learned_give_calibrated_scores_in_files_and_online_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch, '[online]\nunknown = "directions"\n')
    write_tables(tmp_path)
    async with demo:
        await made(demo, "left")
        answer = await demo.ask("bank", "predict", model="m", ids=EVERYBODY, strict=False)
        assert answer["degraded"] == {"telco": 0.5} and answer["learned_at"] == ["telco"]
        assert answer["unknown_at"] == [
            [] if name not in UNKNOWN else ["telco"] for name in EVERYBODY
        ]
        strangers = answer["scores"][60:]
        assert np.mean(strangers) == pytest.approx(RATE, abs=TOLERANCE)
        online = await demo.ask("bank", "score", name="production", ids=UNKNOWN)
        assert [row["score"] for row in online["scores"]] == pytest.approx(strangers)
        # The rows that were held out are scored by the daemon as a file is.
        held_out = held_out_rows(demo.folder / "bank" / "state").read("m")
        assert {*held_out.ids} & {*UNKNOWN}
        assert None not in await scored(demo, list(held_out.ids))


async def test_fallback_models_fit_the_people_whom_they_are_for_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch, '[online]\nunknown = "fallback"\ndeadline = 1\n')
    people = [f"p{row:03}" for row in range(400)]
    write_tables(tmp_path, people)
    async with demo:
        await made(demo, "left", fallback=True)
        strangers = people[200:]
        by = await demo.ask("bank", "predict", model="m", ids=strangers, strict=False)
        assert set(by["fallback"]) == {"m-without-telco"}
        assert np.mean(by["scores"]) == pytest.approx(RATE, abs=TOLERANCE)
        online = await demo.ask("bank", "score", name="production", ids=strangers)
        assert [row["score"] for row in online["scores"]] == pytest.approx(by["scores"])
        # While telco is away nobody knows whom it lacks: its people are not taken for strangers.
        await demo.stop("telco")
        away = await demo.ask("bank", "score", name="production", ids=people[:100])
        assert {row["fallback"] for row in away["scores"]} == {"m-without-telco"}
        trees = demo.daemons["bank"].parts.context.model_store.active("m-without-telco")
        assert trees.shift < -0.5
        assert np.mean([row["score"] for row in away["scores"]]) > 0.4
        await demo.start("telco")


@pytest.mark.parametrize(
    ("join", "online"),
    [("left", ""), ("inner", '[online]\nunknown = "directions"\n')],
    ids=["nothing-said", "nothing-learned"],
)
async def test_without_learned_and_wanted_directions_nobody_whom_telco_lacks_has_a_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, join: str, online: str
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch, online)
    write_tables(tmp_path)
    async with demo:
        await made(demo, join)
        assert await scored(demo, UNKNOWN) == [None] * len(UNKNOWN)
        assert None not in await scored(demo, EVERYBODY[:60])
        answer = await demo.ask("bank", "score", name="production", ids=EVERYBODY[59:61])
        assert answer["scores"][0]["score"] is not None and answer["scores"][1]["score"] is None
        assert answer["degraded"] == {"telco": 0.5}
        with pytest.raises(DaemonError, match="is not known at telco"):
            await demo.ask("bank", "score", name="production", ids=UNKNOWN[:1])


@pytest.mark.long
@pytest.mark.parametrize("way", ["directions", "fallback"])
async def test_people_unknown_at_two_parties_are_calibrated_on_real_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    credit = pooled("credit1")
    table = pd.DataFrame(credit.X).rename(columns="x{}".format, index="c{}".format)
    table["label"] = credit.y.astype(int)
    table = table.sample(18_000, random_state=11)
    label = table.pop("label")
    columns = np.array_split(np.array(sorted(table.columns)), 3)
    random = np.random.default_rng(12)
    held = {"bank": np.ones(len(table), np.bool_)}
    for party in ("telco", "retail"):  # who is unknown there defaults more often
        held[party] = random.random(len(table)) > np.where(label == 1, 0.7, 0.25)
    settings = f'[online]\nunknown = "{way}"\ndeadline = 60.0\nrequest_rows = 20000\n'
    demo = DaemonsInMemory(tmp_path, monkeypatch, settings)
    for party, own in zip(held, columns, strict=True):
        frame = table.loc[held[party], own.tolist()]
        if party == "bank":
            frame = frame.assign(label=label)
        frame.to_csv(tmp_path / party / "data.csv", index_label="id")
    async with demo:
        align = AlignmentJob(name="people", join="left")
        aligned = await demo.ask("bank", "align", job=align.model_dump(mode="json"))
        assert aligned["rows"] == len(table) > aligned["choices"]["inner"] > 9_000
        params = {"num_boost_round": 30, "max_depth": 4, "max_bin": 32, "eta": 0.2}
        job = TrainingJob(
            model="m",
            engine="plain",
            alignment="people",
            evaluation=0.3,
            fallback=way == "fallback",
            params=params,
        )
        await demo.ask("bank", "train", job=job.model_dump(mode="json"))
        await demo.ask("bank", "activate", model="m", name="production", mode=None)
        held_out = held_out_rows(demo.folder / "bank" / "state").read("m")
        ids, true = list(held_out.ids), held_out.label
        in_file = np.array(await scored(demo, ids))
        online = await demo.ask("bank", "score", name="production", ids=ids)
        rows = ScoredRows(
            held_out.ids, held_out.sets, true.astype(np.float64), np.zeros(len(ids)), None
        )
        evaluated, without, lacking, fallbacks = await asyncio.to_thread(
            scored_rows, partial(request_daemon, demo.folder / "bank" / "state"), "m", rows
        )
    assert without == 0 and set(lacking) == {"telco", "retail"}
    assert len(fallbacks) == (3 if way == "fallback" else 0)
    by_way = {
        "file": in_file,
        "online": np.array([row["score"] for row in online["scores"]]),
        "evaluation": evaluated.score,
    }
    places = table.index.get_indexer(ids)
    for party in ("telco", "retail"):
        unknown = ~held[party][places]
        rate = true[unknown].mean()
        assert rate > 1.5 * true.mean()
        for way, found in by_way.items():
            assert found[unknown].mean() == pytest.approx(rate, abs=0.02), (party, way)
            np.testing.assert_allclose(found, in_file)

"""NVFlare's vertical job, moved as the page says: its keys at the sites, aligned and trained."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from fedmq.party.configuration.job import AlignmentJob, TrainingJob
from tests.documentation.fences import DOCS, to_run
from tests.party.daemons_in_memory import DaemonsInMemory

PAGE = DOCS / "how-to" / "from-xgboost.md"
SITES = {"bank": range(32), "telco": range(8, 40), "retail": range(40)}
"""The rows of each site, of which the first is NVFlare's site-1; 24 are everybody's."""


async def test_a_vertical_job_of_nvflare_trains_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, align, train = (fence.text for fence in to_run("toml", PAGE))
    federation = DaemonsInMemory(tmp_path, monkeypatch)
    for site, rows in SITES.items():
        folder = federation.folder / site
        with (folder / "data.csv").open() as file:
            people = list(csv.DictReader(file))
        with (folder / "higgs.data.csv").open("w", newline="") as file:
            columns = ["uid", *(name for name in people[0] if name != "id")]
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows({**people[row], "uid": f"uid_{row}"} for row in rows)
        party = (folder / "party.toml").read_text()
        own = data if site == "bank" else data.replace('label = "label"\n', "")
        policy = party[party.index("[policy]") :]
        (folder / "party.toml").write_text(f"{party.partition('[data]')[0]}{own}{policy}")
    bank = federation.folder / "bank"
    (bank / "align.toml").write_text(align)
    (bank / "train.toml").write_text(train)
    shorter = {"engine": "plain", "engine_options": {}, "num_boost_round": 2}
    job = TrainingJob.read(bank / "train.toml", shorter)
    async with federation:
        aligned = AlignmentJob.read(bank / "align.toml").model_dump(mode="json")
        assert (await federation.ask("bank", "align", job=aligned))["rows"] == 24
        await federation.ask("bank", "train", job=job.model_dump(mode="json"))
    assert all("higgs" in models for models in federation.models().values())
    assert (job.params.max_depth, job.params.eta, job.params.eval_metric) == (8, 0.1, ("auc",))
    assert (job.params.early_stopping_rounds, job.evaluation) == (2, 0.2)

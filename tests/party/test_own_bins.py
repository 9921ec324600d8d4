"""Trainings and screens between whole daemons whose owners say how columns are cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedmq
from fedmq.boosting.params import TrainParams
from fedmq.errors import DaemonError
from fedmq.party.configuration.job import ScreenJob, TrainingJob
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.loading import LoadActiveTable, load_passive_table
from fedmq.party.store.documents import ModelStore
from tests.party.daemons_in_memory import DaemonsInMemory

MEASURED = 'screen = "measured"\ncolumn_names = "shared"\nsmallest_group = 2\n'
PARAMS = TrainParams(num_boost_round=4, max_depth=3, max_bin=8)
GIVEN: dict[str, Any] = {"active": {"x0": [-0.5, 0.5]}, "telco": {"x0": [-1, 0.25, 1], "x1": 3}}


class Cut(DaemonsInMemory):
    """Three parties of 40 people, of whom two say how a column is cut."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, patch, MEASURED)
        self.configure("bank", "[data.bins]\nx0 = [-0.5, 0.5]\n")
        self.configure("telco", '[data.bins]\nx0 = [-1, 0.25, 1]\nx1 = "quantile:3"\n')

    def configure(self, party: str, lines: str) -> None:
        path = self.folder / party / "party.toml"
        text = path.read_text()
        path.write_text(text[: (text + "[data.bins]").index("[data.bins]")] + lines)

    def frame(self, party: str) -> pd.DataFrame:
        return pd.read_csv(self.folder / party / "data.csv", index_col="id").sort_index()

    async def train(self, params: TrainParams = PARAMS) -> None:
        job = TrainingJob(model="cut", engine="plain", params=params)
        await self.ask("bank", "train", job=job.model_dump(mode="json"))


async def test_daemons_train_the_model_of_the_simulation_with_these_bins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = Cut(tmp_path, monkeypatch)
    async with demo:
        await demo.train()
    bank, telco, retail = map(demo.frame, ("bank", "telco", "retail"))
    expected = fedmq.simulate(
        active=bank.drop(columns="label"),
        label=bank["label"],
        passive={"telco": telco, "retail": retail},
        params=PARAMS,
        engine="plain",
        column_bins=GIVEN,
    )
    share = ModelStore(tmp_path / "bank" / "state").active("cut")
    assert [tree.model_dump_json() for tree in share.trees] == [
        tree.model_dump_json() for tree in expected.share.trees
    ]
    for party, cuts in (("bank", [-0.5, 0.5]), ("telco", [-1, 0.25, 1])):
        store = ModelStore(tmp_path / party / "state")
        table = (store.active if party == "bank" else store.passive)("cut").lookup_table
        of_x0 = {
            threshold
            for feature, threshold in zip(table.feature, table.threshold, strict=True)
            if table.feature_names[feature] == "x0"
        }
        assert of_x0 and of_x0 <= {*cuts, np.inf}


async def test_screens_have_the_bins_of_owners_in_an_order_that_nobody_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = Cut(tmp_path, monkeypatch)
    job = ScreenJob(name="look", bins=2).model_dump(mode="json")
    async with demo:
        found = await demo.ask("bank", "screen", job=job)
    for party, cuts in (("bank", [-0.5, 0.5]), ("telco", [-1, 0.25, 1])):
        column = found["parties"][party]["columns"][0]
        people = [one["people"] for one in column["bins"]]
        values = demo.frame(party)["x0"].to_numpy(np.float32)
        expected = np.bincount(np.searchsorted(np.array(cuts, np.float32), values)).tolist()
        # What is told: how many people stand in each bin. Bins of other parties are shuffled.
        assert people == expected if party == "bank" else sorted(people) == sorted(expected)


@pytest.mark.parametrize(
    ("bins", "own", "told"),
    [
        ("x9 = [1]", "telco: {table}: data.bins: 'x9' is none of the columns of numbers", None),
        ("x0 = [1, 2, 3, 4, 5, 6, 7, 8]", None, "telco has given a column 9 bins"),
    ],
)
async def test_the_active_party_learns_no_column_and_no_cut_from_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bins: str, own: str | None, told: str | None
) -> None:
    demo = Cut(tmp_path, monkeypatch)
    demo.configure("telco", f"[data.bins]\n{bins}\n")
    async with demo:
        with pytest.raises(DaemonError) as refused:
            await demo.train()
    assert "x0" not in str(refused.value) and "x9" not in str(refused.value)
    assert told is None or told in str(refused.value)
    config, _ = PartyFile.read(tmp_path / "telco" / "party.toml")
    if own is not None:
        with pytest.raises(Exception, match="none of the columns of numbers") as at_home:
            load_passive_table.bind("telco", config.data, "").run()
        assert str(at_home.value).startswith(own.format(table=config.data.place))


def test_other_bins_are_another_table_for_a_session_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = Cut(tmp_path, monkeypatch)

    def digests() -> tuple[str, str]:
        bank, telco = (
            PartyFile.read(tmp_path / party / "party.toml")[0].data for party in ("bank", "telco")
        )
        passive = load_passive_table.bind("telco", telco, "").run()
        return LoadActiveTable("bank", bank, PARAMS, 0.0, "").run().digest, passive.digest

    before = digests()
    demo.configure("bank", "[data.bins]\nx0 = [-0.5, 0.6]\n")
    demo.configure("telco", "[data.bins]\nx0 = [-1, 0.25, 1]\nx1 = 4\n")
    assert not set(before) & set(digests())

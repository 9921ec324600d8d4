"""Screens between whole daemons: what policies show, and how often; the figures are the table's."""

from __future__ import annotations

import asyncio
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.screened_columns import Strength, screened_columns
from fedmq.boosting.screened_label import ScreenedLabel
from fedmq.errors import DaemonError
from fedmq.party.configuration.job import AlignmentJob, ScreenJob
from fedmq.party.consent.terms import terms_in_words
from fedmq.party.store.documents import made_screens
from tests.party.daemons_in_memory import DaemonsInMemory

GROUP = "smallest_group = 5\n"


def showing(made: DaemonsInMemory, **policies: str) -> DaemonsInMemory:
    """The passive parties' policies, each with small groups: the tables have 40 people."""
    for party, policy in policies.items():
        path = made.folder / party / "party.toml"
        path.write_text(path.read_text() + GROUP + policy + "\n")
    return made


async def look(demo: DaemonsInMemory, **keys: Any) -> Any:
    job = ScreenJob(name="look", bins=4, **keys)
    return await demo.ask("bank", "screen", job=job.model_dump(mode="json"))


def table(demo: DaemonsInMemory, party: str) -> dict[str, np.ndarray]:
    with (demo.folder / party / "data.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def expected(demo: DaemonsInMemory, party: str, smallest: int) -> list[Strength]:
    held, label = table(demo, party), table(demo, "bank")["label"] == "1"
    values = np.column_stack([held["x0"], held["x1"]]).astype(np.float32)
    columns = screened_columns(values, ("x0", "x1"), {}, 4, smallest)
    return [Strength.of(column.counts, column.ones(label)) for column in columns]


async def test_measured_columns_have_the_figures_of_the_joined_table_and_described_ones_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = showing(
        DaemonsInMemory(tmp_path, monkeypatch),
        telco='screen = "measured"\ncolumn_names = "shared"',
        retail='screen = "described"',
    )
    async with demo:
        found = await look(demo)
    assert (found["rows"], found["looked_at"]) == (40, 40)
    kept = made_screens(tmp_path / "bank" / "state")
    assert kept.read("look").found["selected"] == found["selected"]
    assert kept.path("look").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "telco" / "state" / "screens").exists()
    for party, smallest in (("bank", 1), ("telco", 5)):
        columns = found["parties"][party]["columns"]
        assert [column["name"] for column in columns] == ["x0", "x1"]
        for column, strength in zip(columns, expected(demo, party, smallest), strict=True):
            assert column["iv"] == pytest.approx(strength.iv)
            assert column["auc"] == pytest.approx(strength.auc)
            assert column["ks"] == pytest.approx(strength.ks)
    for column in found["parties"]["retail"]["columns"]:
        assert column["name"] is None and column["distinct"] == "11 to 100"
        assert "iv" not in column and "bins" not in column


async def test_columns_are_selected_among_all_parties(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = showing(DaemonsInMemory(tmp_path, monkeypatch), telco='screen = "measured"')
    async with demo:
        found = await look(demo, parties=("telco",), select={"top": 3, "missing": 0.5})
    strengths = sorted(
        (
            (column["iv"], party, column["column"])
            for party, told in found["parties"].items()
            for column in told["columns"]
        ),
        reverse=True,
    )
    chosen = {(party, number) for party, of in found["selected"].items() for number in of}
    assert chosen == {(party, number) for _, party, number in strengths[:3]}
    assert found["select"] == {"top": 3, "missing": 0.5}


async def test_an_owner_that_says_nothing_shows_nothing_and_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = showing(DaemonsInMemory(tmp_path, monkeypatch), telco='screen = "described"')
    async with demo:
        found = await look(demo)
        assert found["parties"]["retail"]["refused"] == (
            "retail does not show its columns: retail does not show its columns before a training; "
            'screen = "described", "hidden" or "measured" in its [policy] would allow it'
        )
        assert len(found["parties"]["telco"]["columns"]) == 2
        with pytest.raises(DaemonError, match="telco holds no label"):
            await demo.ask("telco", "screen", job={"name": "look"})


async def test_an_owner_may_allow_hidden_sums_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = showing(DaemonsInMemory(tmp_path, monkeypatch), telco='screen = "hidden"')
    async with demo:
        refused = (await look(demo, parties=("telco",)))["parties"]["telco"]["refused"]
        assert "telco does not show sums of a label" in refused
        found = await look(demo, parties=("telco",), sums="hidden", select={"iv": 0.02})
        for column in found["parties"]["telco"]["columns"]:
            assert column.keys().isdisjoint({"bins", "auc", "p"})
            assert column["iv_below"] is None or column["iv_below"] > column["iv"]
        chosen = [
            column["column"]
            for column in found["parties"]["telco"]["columns"]
            if column["iv"] >= 0.02
        ]
        assert found["selected"]["telco"] == chosen


async def test_an_owner_that_shows_sums_hides_them_where_the_job_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = showing(DaemonsInMemory(tmp_path, monkeypatch), telco='screen = "measured"')
    async with demo:
        shown = await look(demo, parties=("telco",))
        hidden = await look(demo, parties=("telco",), sums="hidden")
        columns = zip(
            shown["parties"]["telco"]["columns"], hidden["parties"]["telco"]["columns"], strict=True
        )
        for exact, step in columns:
            assert "bins" not in step
            assert step["iv"] <= exact["iv"] < (step["iv_below"] or float("inf"))


async def test_only_the_columns_of_the_policy_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = 'screen = "described"\ncolumn_names = "shared"\nfeatures = ["x1"]'
    demo = showing(DaemonsInMemory(tmp_path, monkeypatch), telco=policy)
    async with demo:
        found = await look(demo, parties=("telco",))
    assert [column["name"] for column in found["parties"]["telco"]["columns"]] == ["x1"]


async def test_an_alignment_says_whose_columns_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = showing(DaemonsInMemory(tmp_path, monkeypatch), telco='screen = "measured"')
    path = demo.folder / "telco" / "data.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:-10]) + "\n")
    async with demo:
        refused = (await look(demo, parties=("telco",)))["parties"]["telco"]["refused"]
        assert "the ids of telco and of bank are not the same" in refused
        job = AlignmentJob(name="customers", parties=("telco",)).model_dump(mode="json")
        await demo.ask("bank", "align", job=job)
        found = await look(demo, parties=("telco",), alignment="customers")
        assert found["rows"] == 30
        bins = found["parties"]["telco"]["columns"][0]["bins"]
        assert sum(one["people"] for one in bins) == 30
        assert sum(one["ones"] for one in bins) == found["ones"]


async def test_screens_are_counted_by_the_day_and_over_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = showing(
        DaemonsInMemory(tmp_path, monkeypatch),
        telco='screen = "described"\nmost_screens_per_day = 2',
    )
    async with demo:
        for _ in range(2):
            assert "columns" in (await look(demo, parties=("telco",)))["parties"]["telco"]
        await demo.stop("telco")
        await demo.start("telco")
        refused = (await look(demo, parties=("telco",)))["parties"]["telco"]["refused"]
        assert "2 screens a day at most" in refused


async def test_people_who_differ_by_few_from_those_of_an_earlier_screen_are_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = showing(DaemonsInMemory(tmp_path, monkeypatch), telco='screen = "described"')
    async with demo:
        told = await look(demo, parties=("telco",), most_rows=36)
        assert "columns" in told["parties"]["telco"]
        again = await look(demo, parties=("telco",), most_rows=36)
        assert "columns" in again["parties"]["telco"]
        refused = (await look(demo, parties=("telco",)))["parties"]["telco"]["refused"]
        assert "differ by about 4" in refused


async def test_too_few_people_are_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = showing(DaemonsInMemory(tmp_path, monkeypatch), telco='screen = "described"')
    async with demo:
        found = await look(demo, parties=("telco",), most_rows=4)
    assert "shows columns of 5 people or more" in found["parties"]["telco"]["refused"]


async def test_labels_other_than_0_and_1_are_refused_by_name_before_anybody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = showing(DaemonsInMemory(tmp_path, monkeypatch), telco='screen = "measured"')
    path = demo.folder / "bank" / "data.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *(line.replace(",1,", ",7,") for line in lines[1:])]))
    asked: list[str] = []

    async def hold(_: str, recipient: str, __: str) -> bool:
        asked.append(recipient)
        return False

    demo.hold = hold
    async with demo:
        with pytest.raises(DaemonError, match=r"column 'label': label in row \d+ is 7"):
            await look(demo)
        assert "telco" not in asked


async def test_one_label_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demo = showing(DaemonsInMemory(tmp_path, monkeypatch), telco='screen = "measured"')
    path = demo.folder / "bank" / "party.toml"
    path.write_text(path.read_text().replace('label = "label"', 'label = ["label", "x0"]'))
    async with demo:
        with pytest.raises(DaemonError, match="a screen takes one label, and here are 2"):
            await look(demo)


async def test_an_owner_reads_what_is_told_and_measured_before_a_row_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = showing(
        DaemonsInMemory(tmp_path, monkeypatch), telco='screen = "measured"\nconsent = "ask"'
    )
    async with demo:
        looking = asyncio.create_task(look(demo, parties=("telco",)))
        asked = await demo.waiting("telco")
        words = dict(terms_in_words({"peer": "bank", **asked}))
        assert "how many people with either label stand in each bin" in words["active party learns"]
        assert "45.3 %" in words["measured"]
        assert words["spent today"].startswith("1 of 5 screens")
        diff = (await demo.ask("telco", "alike", request=asked["request"]))["diff"]
        await demo.ask("telco", "approve", request=asked["request"], by="olga", diff=diff)
        assert "columns" in (await looking)["parties"]["telco"]
        # The same again needs no question; more bins do.
        assert "columns" in (await look(demo, parties=("telco",)))["parties"]["telco"]
        job = ScreenJob(name="look", bins=9, parties=("telco",)).model_dump(mode="json")
        looking = asyncio.create_task(demo.ask("bank", "screen", job=job))
        asked = await demo.waiting("telco")
        await demo.ask("telco", "refuse", request=asked["request"], by="olga")
        assert "telco refused" in (await looking)["parties"]["telco"]["refused"]


async def test_an_owner_whose_sums_stay_hidden_reads_so_and_its_yes_covers_no_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = showing(
        DaemonsInMemory(tmp_path, monkeypatch), telco='screen = "measured"\nconsent = "ask"'
    )
    async with demo:
        looking = asyncio.create_task(look(demo, parties=("telco",), sums="hidden", iv_from=0.04))
        asked = await demo.waiting("telco")
        words = dict(terms_in_words({"peer": "bank", **asked}))
        assert "steps of 0.02, from 0.04 on; sums stay hidden" in words["active party learns"]
        assert "6 bits of each column" in words["measured"]
        diff = (await demo.ask("telco", "alike", request=asked["request"]))["diff"]
        assert "least_steps = 2" in diff
        await demo.ask("telco", "approve", request=asked["request"], by="olga", diff=diff)
        assert "columns" in (await looking)["parties"]["telco"]
        again = await look(demo, parties=("telco",), sums="hidden", iv_from=0.1)
        assert "columns" in again["parties"]["telco"]
        looking = asyncio.create_task(look(demo, parties=("telco",)))
        asked = await demo.waiting("telco")
        await demo.ask("telco", "refuse", request=asked["request"], by="olga")
        assert "telco refused" in (await looking)["parties"]["telco"]["refused"]
    log = (tmp_path / "telco" / "state" / "audit.jsonl").read_text().splitlines()
    agreed = [entry for entry in map(json.loads, log) if entry["event"] == "agreed"]
    assert [entry.get("shown") for entry in agreed] == ["hidden", "hidden", "measured"]


async def test_columns_are_correlated_where_the_owner_says_so_and_the_audit_log_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = showing(
        DaemonsInMemory(tmp_path, monkeypatch),
        telco='screen = "described"\ncorrelation = "shown"',
        retail='screen = "described"',
    )
    async with demo:
        found = await look(demo, correlation=True)
        again = await look(demo, correlation=True)
        assert "joint" not in (await look(demo))["parties"]["telco"]
    own, held = table(demo, "bank"), table(demo, "telco")
    joined = np.array([table_[name] for table_ in (own, held) for name in ("x0", "x1")], np.float64)
    wanted = np.corrcoef(joined)
    told = found["parties"]["telco"]
    # Asked again it tells nothing more: the noise follows from the question.
    assert again["parties"]["telco"]["joint"] == told["joint"]
    assert (tmp_path / "telco" / "state" / "kept.secret").stat().st_mode & 0o777 == 0o600
    assert told["joint"]["columns"] == told["correlation"]["columns"] == [1, 2]
    np.testing.assert_allclose(told["joint"]["coefficients"], wanted[2:, :2], atol=0.0106)
    np.testing.assert_allclose(told["correlation"]["coefficients"], wanted[2:, 2:], atol=0.0051)
    expected = np.diag(np.linalg.inv(wanted))
    vif = [column["vif"] for column in told["columns"]]
    np.testing.assert_allclose([*told["joint"]["vif"], *vif], expected, rtol=0.1)
    assert all(column["name"] is None for column in told["columns"])
    assert 'correlation = "shown" in its [policy]' in found["parties"]["retail"]["uncorrelated"]
    log = (tmp_path / "telco" / "state" / "audit.jsonl").read_text().splitlines()
    agreed = [entry for entry in map(json.loads, log) if entry["event"] == "agreed"]
    assert [entry.get("correlated") for entry in agreed] == [2, 2, None]


async def test_columns_of_passive_parties_are_correlated_where_both_owners_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = 'screen = "described"\ncorrelation = '
    demo = showing(
        DaemonsInMemory(tmp_path, monkeypatch), telco=f'{policy}"all"', retail=f'{policy}"all"'
    )
    async with demo:
        found = await look(demo, correlation=True)
        again = await look(demo, correlation=True)
    parties = found["parties"]
    held = [table(demo, party) for party in ("bank", "telco", "retail")]
    wanted = np.corrcoef(np.array([of[name] for of in held for name in ("x0", "x1")], np.float64))
    [(other, between)] = parties["telco"]["among"].items()
    assert other == "retail" and "among" not in parties["retail"]
    np.testing.assert_allclose(between["coefficients"], wanted[2:4, 4:], atol=0.0156)
    assert again["parties"]["telco"]["among"] == parties["telco"]["among"]
    told = [*parties["bank"]["whole"]["vif"]]
    told += [column["vif"] for party in ("telco", "retail") for column in parties[party]["columns"]]
    np.testing.assert_allclose(told, np.diag(np.linalg.inv(wanted)), rtol=0.15)
    log = (tmp_path / "retail" / "state" / "audit.jsonl").read_text().splitlines()
    agreed = [entry for entry in map(json.loads, log) if entry["event"] == "agreed"]
    assert [entry.get("pair") for entry in agreed] == [None, ["telco", "retail"]] * 2


async def test_columns_of_a_party_that_shows_them_to_the_active_party_alone_stay_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = 'screen = "described"\ncorrelation = '
    demo = showing(
        DaemonsInMemory(tmp_path, monkeypatch), telco=f'{policy}"all"', retail=f'{policy}"shown"'
    )
    async with demo:
        parties = (await look(demo, correlation=True))["parties"]
    assert all("joint" in parties[party] for party in ("telco", "retail"))
    assert not any("among" in told or "whole" in told for told in parties.values())


async def test_an_owner_is_asked_about_each_other_passive_party(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = 'screen = "described"\ncorrelation = "all"\n'
    demo = showing(
        DaemonsInMemory(tmp_path, monkeypatch), telco=f'{policy}consent = "ask"', retail=policy
    )
    async with demo:
        looking = asyncio.create_task(look(demo, correlation=True))
        asked = await demo.waiting("telco")
        await demo.ask("telco", "approve", request=asked["request"], by="olga")
        asked = await demo.waiting("telco")
        words = dict(terms_in_words({"peer": "bank", **asked}))
        assert "of telco are correlated with those of retail" in words["active party learns"]
        assert "that lie together" in words["told by correlations"]
        with pytest.raises(DaemonError, match="approve it without --alike"):
            await demo.ask("telco", "alike", request=asked["request"])
        await demo.ask("telco", "refuse", request=asked["request"], by="olga")
        found = await looking
    refused = found["parties"]["telco"]["among"]["retail"]["refused"]
    assert refused.startswith("telco does not correlate its columns with those of others")


async def test_people_who_differ_by_few_are_not_correlated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = 'screen = "described"\ncorrelation = "shown"'
    demo = showing(DaemonsInMemory(tmp_path, monkeypatch), telco=policy)
    async with demo:
        told = await look(demo, parties=("telco",), most_rows=39, correlation=True)
        assert "joint" in told["parties"]["telco"]
        refused = await look(demo, parties=("telco",), correlation=True)
    assert "differ by about 1" in refused["parties"]["telco"]["refused"]


async def test_an_owner_reads_what_correlations_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = 'screen = "described"\ncorrelation = "shown"\nconsent = "ask"'
    demo = showing(DaemonsInMemory(tmp_path, monkeypatch), telco=policy)
    async with demo:
        looking = asyncio.create_task(look(demo, parties=("telco",), correlation=True))
        asked = await demo.waiting("telco")
        words = dict(terms_in_words({"peer": "bank", **asked}))
        assert "correlated with 2 of its own" in words["active party learns besides"]
        assert "the value of one person" in words["told by correlations"]
        await demo.ask("telco", "approve", request=asked["request"], by="olga")
        assert "joint" in (await looking)["parties"]["telco"]


async def test_the_audit_log_says_what_was_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = showing(DaemonsInMemory(tmp_path, monkeypatch), telco='screen = "described"')
    async with demo:
        await look(demo, parties=("telco",))
    log = (tmp_path / "telco" / "state" / "audit.jsonl").read_text().splitlines()
    agreed = [entry for entry in map(json.loads, log) if entry["event"] == "agreed"]
    assert [(entry["screen"], entry["shown"]) for entry in agreed] == [("look", "described")]


@pytest.mark.parametrize("label_type", ["classes", "number"])
async def test_labels_of_classes_and_of_numbers_have_the_figures_of_the_joined_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label_type: Any
) -> None:
    policy = 'screen = "measured"\nconsent = "ask"'
    demo = showing(DaemonsInMemory(tmp_path, monkeypatch), telco=policy)
    path = demo.folder / "bank" / "data.csv"
    header, *lines = path.read_text().splitlines()
    place = header.split(",").index("label")
    cells = [line.split(",") for line in lines]
    for number, row in enumerate(cells):
        row[place] = str(number * 7 % 3 if label_type == "classes" else 100 + number**1.5)
    path.write_text("\n".join([header, *map(",".join, cells)]) + "\n")
    async with demo:
        looking = asyncio.create_task(look(demo, parties=("telco",), label_type=label_type))
        asked = await demo.waiting("telco")
        words = dict(terms_in_words({"peer": "bank", **asked}))
        learns = "each of 3 labels" if label_type == "classes" else "sum of a label of numbers"
        assert learns in words["active party learns"]
        # 40 people take 6 bits: an answer has two counts, or a fraction of 11 bits, and one more
        # bit of each.
        read = 14 if label_type == "classes" else 18
        assert f"that lies reads the bins of {read} of" in words["such a label"]
        diff = (await demo.ask("telco", "alike", request=asked["request"]))["diff"]
        await demo.ask("telco", "approve", request=asked["request"], by="olga", diff=diff)
        found = await looking
        # A yes for all times covers this label, and no other one.
        again = await look(demo, parties=("telco",), label_type=label_type)
        assert "columns" in again["parties"]["telco"]
        other = "number" if label_type == "classes" else "classes"
        if other == "number":
            looking = asyncio.create_task(look(demo, parties=("telco",), label_type=other))
            asked = await demo.waiting("telco")
            await demo.ask("telco", "refuse", request=asked["request"], by="olga")
            assert "telco refused" in (await looking)["parties"]["telco"]["refused"]
    held = table(demo, "telco")
    values = np.column_stack([held["x0"], held["x1"]]).astype(np.float32)
    numbers = np.array([row[place] for row in cells], np.float32)
    label = ScreenedLabel.of(numbers, label_type, "bank")
    columns = screened_columns(values, ("x0", "x1"), {}, 4, 5)
    for column, told in zip(columns, found["parties"]["telco"]["columns"], strict=True):
        wanted = label.told_by(column.counts, label.by_bin(column))
        assert told["p"] == pytest.approx(wanted["p"], rel=1e-2)
        statistic = "chi2" if label_type == "classes" else "f"
        assert told[statistic] == pytest.approx(wanted[statistic], rel=1e-3)
    log = (tmp_path / "telco" / "state" / "audit.jsonl").read_text().splitlines()
    agreed = [entry for entry in map(json.loads, log) if entry["event"] == "agreed"]
    told = [entry["classes"] for entry in agreed]
    assert told == ([3, 3, 0] if label_type == "classes" else [0, 0])

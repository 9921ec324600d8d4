from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from fedmq import TrainParams, simulate
from fedmq.cli.estimate import _with_fallbacks
from fedmq.cli.main import cli
from fedmq.errors import ConfigError
from fedmq.party.store.documents import ModelStore
from fedmq.simulation import calibration


@pytest.fixture(autouse=True)
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_SHORT_TREE", 0.0)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("estimate") / "federation"
    made = ["init", str(folder), "--active", "bank", "--passive", "telco", "--example"]
    assert CliRunner().invoke(cli, made).exit_code == 0
    (folder / "bank" / "train.toml").write_text(
        'engine = "plain"\n[params]\nnum_boost_round = 4\nmax_depth = 2\nmax_bin = 8\n'
    )
    return folder


def asked(federation: Path, *options: str) -> list[str]:
    return ["estimate", str(federation / "bank" / "train.toml"), *options]


def test_each_party_learns_what_it_is_in_for(federation: Path) -> None:
    run = CliRunner().invoke(cli, asked(federation, "--columns", "telco=5", "--json"))
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    assert found["trees"] == 4
    assert found["parties"].keys() == {"bank", "telco"}
    assert all(cost["bytes_sent"] > 0 for cost in found["parties"].values())


def test_people_read_it_in_words(federation: Path) -> None:
    run = CliRunner().invoke(cli, asked(federation))
    assert re.match(r"4 trees on [0-9]+ rows: about ", run.stdout)
    assert "  telco: " in run.stdout


@pytest.mark.parametrize("columns", ["retail=3", "telco", "telco=many"])
def test_columns_of_nobody_are_refused(federation: Path, columns: str) -> None:
    run = CliRunner().invoke(cli, asked(federation, "--columns", columns))
    assert isinstance(run.exception, ConfigError)
    assert str(run.exception).startswith(f"--columns {columns}: write PARTY=COUNT")


@pytest.mark.parametrize("bins", ["retail=3,3", "telco", "telco=many", "telco=3,,4"])
def test_bins_of_nobody_are_refused(federation: Path, bins: str) -> None:
    run = CliRunner().invoke(cli, asked(federation, "--bins", bins))
    assert isinstance(run.exception, ConfigError)
    assert str(run.exception).startswith(f"--bins {bins}: write PARTY=BINS,BINS,...")


@pytest.mark.parametrize("link", ["10", "10,fast", "0,50", "10,-1", "nan,50", "10,50,3"])
def test_links_that_are_none_are_refused(federation: Path, link: str) -> None:
    run = CliRunner().invoke(cli, asked(federation, "--link", link))
    assert isinstance(run.exception, ConfigError)
    assert str(run.exception).startswith(f"--link {link}: write MBIT,MS, such as 10,50")


def test_a_slow_link_takes_its_time(federation: Path) -> None:
    run = CliRunner().invoke(cli, asked(federation, "--link", "0.256,300", "--json"))
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    sent = found["parties"]["telco"]["bytes_sent"] + found["parties"]["telco"]["bytes_received"]
    assert found["seconds_on_a_machine_each"] > sent / 32_000
    assert found["link"] == {"megabits": 0.256, "milliseconds": 300}


def test_people_read_over_which_link(federation: Path) -> None:
    run = CliRunner().invoke(cli, asked(federation, "--link", "0.256,300"))
    assert re.match(
        r"4 trees on [0-9]+ rows over a link of 0.256 Mbit/s and 300 ms: about ", run.stdout
    )


def test_what_a_party_says_of_its_bins_is_what_the_estimate_takes(federation: Path) -> None:
    telco = str(federation / "telco" / "party.toml")
    counts = CliRunner().invoke(cli, ["data", "bins", telco, "--max-bin", "8"])
    assert counts.exit_code == 0, counts.output
    line = counts.stdout.splitlines()[-1]
    assert line.startswith("telco=")
    run = CliRunner().invoke(cli, asked(federation, "--bins", line, "--json"))
    assert run.exit_code == 0, run.output


def test_a_table_on_paper_needs_no_file(federation: Path, tmp_path: Path) -> None:
    shutil.copytree(federation, tmp_path / "federation")
    job = tmp_path / "federation" / "bank" / "train.toml"
    party = job.parent / "party.toml"
    party.write_text(re.sub(r'^path = ".*"', 'path = "none.csv"', party.read_text(), flags=re.M))
    assert 'path = "none.csv"' in party.read_text()
    asked = ["estimate", str(job), "--rows", "40000000", "--columns", "bank=3", "--columns"]
    prices = ["--price-core-hour", "1", "--price-gigabyte", "10"]
    run = CliRunner().invoke(cli, [*asked, "telco=2", *prices, "--json"])
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    assert (found["rows"], found["most_rows"]) == (40_000_000, 32_000_000)
    bank, telco = found["parties"]["bank"], found["parties"]["telco"]
    assert bank["bytes_sent"] > 40_000_000 * 8 * 4  # g and h of each row, in each of four trees
    for party in (bank, telco):
        cost = party["core_seconds"] / 3600 + party["bytes_sent"] / 1e8
        assert party["cost"] == pytest.approx(cost, abs=1e-3)
    received = bank["bytes_received"] + telco["bytes_received"]
    assert found["broker_cost"] == pytest.approx(received / 1e8, abs=1e-3)


def test_a_table_on_paper_needs_its_columns(federation: Path) -> None:
    for columns in ([], ["--columns", "bank=3"]):
        run = CliRunner().invoke(cli, asked(federation, "--rows", "5000", *columns))
        assert isinstance(run.exception, ConfigError)
        missing = "bank" if not columns else "telco"
        assert str(run.exception) == (
            f"--rows reads no table: say how many columns {missing} has, --columns {missing}=COUNT"
        )


@pytest.mark.parametrize(("passive", "models", "exchanges"), [(1, 1, 1), (2, 3, 2), (3, 4, 3)])
def test_fallback_models_are_added_up(passive: int, models: int, exchanges: int) -> None:
    cost = {
        "core_seconds": 2.0,
        "bytes_sent": 100,
        "bytes_received": 10,
        "memory_bytes": 7,
        "cost": 3.0,
    }
    parties = {"bank": cost} | {f"p{n}": {**cost, "sums_per_row": 3.5} for n in range(passive)}
    found = _with_fallbacks(
        {"seconds_on_one_machine": 6.0, "seconds_on_a_machine_each": 4.0, "parties": parties},
        "bank",
    )
    assert found["models"] == models
    assert found["seconds_on_a_machine_each"] == 4.0 * (1 + models)
    assert found["parties"]["bank"]["core_seconds"] == 2.0 * (1 + models)
    assert found["parties"]["bank"]["bytes_sent"] == 100 * exchanges
    assert found["parties"]["p0"] == {
        "core_seconds": 2.0 * exchanges,
        "bytes_sent": 100 * exchanges,
        "bytes_received": 10 * exchanges,
        "memory_bytes": 7,
        "cost": 3.0 * exchanges,
        "sums_per_row": 3.5 * exchanges,
    }


def test_scores_of_a_model_are_estimated_at_the_active_party_alone(federation: Path) -> None:
    table = np.random.default_rng(0).normal(size=(200, 4))
    made = simulate(
        active=table[:, :2],
        label=(table.sum(axis=1) > 0).astype(int),
        passive={"telco": table[:, 2:]},
        params=TrainParams(num_boost_round=3, max_depth=2),
        engine="plain",
    )
    share = made.share.model_copy(update={"model_id": "m", "parties": ("bank", "telco")})
    ModelStore(federation / "bank" / "state").save(share)
    bank, telco = (str(federation / party / "party.toml") for party in ("bank", "telco"))
    run = CliRunner().invoke(cli, ["estimate", bank, "--model", "m", "--json"])
    assert run.exit_code == 0, run.output
    modes = json.loads(run.stdout)["modes"]
    assert modes.keys() == {"hop", "bitmap", "sealed"}
    assert all(cost["parties"]["telco"]["bytes_sent"] > 0 for cost in modes.values())
    words = CliRunner().invoke(cli, ["estimate", bank, "--model", "m"]).stdout
    assert words.startswith("scores of m, 3 trees") and "sealed" in words
    refused = CliRunner().invoke(cli, ["estimate", telco, "--model", "m"]).exception
    assert str(refused) == "telco holds no trees: bank can estimate this"


def test_a_job_that_refreshes_a_model_is_estimated_by_rows_that_walk_down_its_trees(
    federation: Path,
) -> None:
    bank, rows = federation / "bank", 300
    head = (bank / "data.csv").read_text().partition("\n")[0].split(",")
    columns = [name for name in head if name not in ("id", "label")]
    random = np.random.default_rng(1)
    table = random.normal(size=(rows, len(columns)))
    telco = random.normal(size=(rows, 2))
    made = simulate(
        active=pd.DataFrame(table, columns=columns),
        label=(table[:, 0] + telco.sum(axis=1) > 0).astype(int),
        passive={"telco": telco},
        params=TrainParams(num_boost_round=3, max_depth=3),
        engine="plain",
    )
    share = made.share.model_copy(update={"model_id": "winter", "parties": ("bank", "telco")})
    ModelStore(bank / "state").save(share)
    job = bank / "refresh.toml"
    job.write_text('refresh = "winter"\n[params]\neta = 0.5\n')
    run = CliRunner().invoke(cli, ["estimate", str(job), "--json"])
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    assert (found["refreshes"], found["trees"]) == ("winter", 3)
    assert found["parties"].keys() == {"bank", "telco"}
    assert all(cost["bytes_sent"] > 0 for cost in found["parties"].values())
    assert found["parties"]["bank"]["bytes_sent"] == found["parties"]["telco"]["bytes_received"]
    words = CliRunner().invoke(cli, ["estimate", str(job)]).stdout
    assert words.startswith(f"leaves of winter, 3 trees, on {found['rows']} rows: about ")
    job.write_text('refresh = "winter"\n[params]\nmax_depth = 9\n')
    refused = CliRunner().invoke(cli, ["estimate", str(job)]).exception
    assert "refresh: max_depth = 9, model 'winter' has 3, and keeps it" in str(refused)

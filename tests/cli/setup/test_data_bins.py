"""``fedmq data bins``: where own columns are cut, and cuts of which scores read as a table."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from tests.cli.command import fedmq

ROWS = 200


@pytest.fixture
def party(tmp_path: Path) -> Path:
    """A bank: income tells the label, and is missing at every tenth person."""
    (tmp_path / "federation.toml").write_text(
        'name = "demo"\nactive = "bank"\npassive = ["telco"]\n'
    )
    draw = np.random.default_rng(0)
    income = np.round(draw.gamma(2, 1500, ROWS))
    label = draw.random(ROWS) < 1 / (1 + np.exp((income - 3000) / 1000))
    lines = ["id,y,income,born,town"]
    for row in range(ROWS):
        known = "" if row % 10 == 0 else f"{income[row]:.0f}"
        lines.append(
            f"p{row:03},{int(label[row])},{known},1980-01-{row % 28 + 1:02},{'ab'[row % 2]}"
        )
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    path = tmp_path / "party.toml"
    path.write_text(
        'party = "bank"\nfederation = "federation.toml"\n'
        'broker = "amqp://bank:bank@127.0.0.1:1/"\n'
        '[data]\npath = "data.csv"\nid = "id"\nlabel = "y"\n'
        '[data.columns.born]\nkind = "date"\nparts = ["days"]\n'
    )
    return path


def cut(party: Path, lines: str) -> Path:
    text = party.read_text()
    party.write_text(
        text[: (text + "[data.bins]").index("[data.bins]")] + f"[data.bins]\n{lines}\n"
    )
    return party


def test_columns_are_listed_with_their_cuts_and_a_line_for_the_estimate(party: Path) -> None:
    lines = fedmq("data", "bins", cut(party, "income = [1000, 2000.5]"), "--max-bin", "4").out
    head, income, born, *_, estimate = lines.splitlines()
    assert head.split() == ["COLUMN", "BINS", "SMALLEST", "LARGEST", "MISSING", "CUTS"]
    assert income.split()[:3] == ["income", "3", "given"]
    assert income.endswith("10.00%   1000, 2000.5")
    assert born.split()[:2] == ["born.days", "4"]
    assert estimate == "bank=3,4,2,2"


def test_json_has_the_share_of_rows_of_each_bin(party: Path) -> None:
    found = fedmq("data", "bins", cut(party, "income = [1000, 2000]"), "--json").result
    assert (found["party"], found["rows"], found["max_bin"]) == ("bank", ROWS, 256)
    income, born, *towns = found["columns"]
    assert [of["name"] for of in towns] == ["town=a", "town=b"]
    assert (income["given"], income["cuts"], born["given"]) == ([1000, 2000], [1000, 2000], None)
    values = np.genfromtxt(party.with_name("data.csv"), delimiter=",", skip_header=1, usecols=2)
    inside = np.histogram(values[~np.isnan(values)], [-np.inf, 1000.1, 2000.1, np.inf])[0]
    assert income["shares"] == pytest.approx(inside / ROWS)
    assert income["missing"] == 0.1
    assert found["bins"] == [len(of["cuts"]) + 1 for of in found["columns"]]


def test_a_column_is_shown_bin_by_bin(party: Path) -> None:
    cut(party, "income = [1000, 2000]")
    lines = fedmq("data", "bins", party, "--column", "income").out.splitlines()
    assert [line.rsplit(None, 1)[0] for line in lines[:5]] == [
        "INCOME",
        "up to 1000",
        "1000 to 2000",
        "above 2000",
        "missing",
    ]
    outcome = fedmq("data", "bins", party, "--column", "incme")
    assert outcome.code == 3
    assert "--column: bank has no column 'incme'; there are 'income', 'born.days'" in outcome.err


def test_monotone_cuts_are_pasted_and_stay_as_they_are(party: Path) -> None:
    outcome = fedmq("data", "bins", party, "--monotone")
    assert outcome.code == 0, outcome.err
    pasted = tomllib.loads(outcome.out)["data"]["bins"]
    found = fedmq("data", "bins", party, "--monotone", "--json").result
    income = found["columns"][0]
    assert pasted["income"] == income["cuts"]
    assert income["direction"] == "falls"
    assert (np.diff(income["woe"]) < 0).all() and 2 < len(income["woe"]) < 20
    assert income["iv"] > 0.5
    assert income["missing_woe"] is not None
    assert [of["name"] for of in found["columns"]] == ["income", "born.days"]
    cut(party, outcome.out.removeprefix("[data.bins]\n"))
    again = fedmq("data", "bins", party, "--json").result["columns"][0]
    assert again["cuts"] == income["cuts"]
    assert again["shares"] == income["shares"]
    assert fedmq("data", "bins", party, "--monotone", "--json").result["columns"][0] == {
        **income,
        "given": pytest.approx(income["cuts"]),
    }


def test_only_the_holder_of_the_label_pools_bins(party: Path) -> None:
    text = party.read_text().replace('party = "bank"', 'party = "telco"')
    party.write_text(text.replace('label = "y"', 'ignore = ["y"]'))
    outcome = fedmq("data", "bins", party, "--monotone")
    assert outcome.code == 3
    assert outcome.err.startswith("fedmq: --monotone: bank alone has the label, and telco does not")


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (
            "incme = [1]",
            "'incme' is none of the columns of numbers, 'income', 'born.days'; did you",
        ),
        ("y = [1]", "'y' is none of the columns of numbers, 'income', 'born.days'"),
        ("town = [1]", "column 'town' holds categories, which no cut parts"),
        ("born = 3", "'born' is a date, whose numbers are 'born.days'"),
    ],
)
def test_bins_of_no_column_of_numbers_are_refused_by_every_command(
    party: Path, lines: str, problem: str
) -> None:
    cut(party, lines)
    for command in ("bins", "check"):
        outcome = fedmq("data", command, party)
        assert outcome.code == 4
        [line] = [line for line in outcome.err.splitlines() if line.startswith("fedmq: ")]
        assert "data.csv: data.bins: " in line and problem in line
    assert fedmq("data", "describe", party, "--json").result["refused"][0].count(problem) == 1


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("income = [2, 1]", "data.bins.income: 1 stands after 2: write each cut once, ascending"),
        ("income = [1, nan]", "data.bins.income: nan is no finite float32"),
        ("income = [-inf, 1]", "data.bins.income: -inf is no finite float32"),
        ("income = []", "data.bins.income: write cuts, such as [1000, 2000, 5000], or the most"),
        ('income = ["1"]', "data.bins.income: write cuts, such as [1000, 2000, 5000], or the most"),
        ('income = "quantile:1"', "data.bins.income: 1 bins: write a number from 2 to 65535"),
    ],
)
def test_wrong_cuts_are_one_line_with_file_and_key(party: Path, lines: str, problem: str) -> None:
    outcome = fedmq("data", "bins", cut(party, lines))
    assert outcome.code == 3
    assert outcome.err.startswith(f"fedmq: {party}: {problem}")
    assert outcome.err.count("\n") == 1


def test_bins_at_the_top_of_the_file_are_shown_their_place(party: Path) -> None:
    party.write_text(party.read_text() + "[bins]\nincome = [1]\n")
    assert "bins: bins belongs into the table [data]" in fedmq("data", "bins", party).err
    party.write_text(party.read_text().replace("[bins]\nincome = [1]\n", ""))


def test_descriptions_have_the_cuts_that_are_given(party: Path) -> None:
    cut(party, "income = [1000, 2000]")
    column = next(
        of
        for of in fedmq("data", "describe", party, "--json").result["columns"]
        if of["name"] == "income"
    )
    assert column["spreads"][0]["cuts"] == [1000, 2000]

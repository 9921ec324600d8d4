"""`fedmq.screen`: its figures are those of the joined table, and data frames go in and out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest
import scipy.stats
from sklearn.metrics import roc_auc_score

import fedmq
from fedmq.errors import ConfigError, DataError

ROWS = 240
RANDOM = np.random.default_rng(4)
BANK = pandas.DataFrame({"age": RANDOM.normal(size=ROWS), "job": RANDOM.choice(list("ab"), ROWS)})
TELCO = pandas.DataFrame(
    {"calls": RANDOM.integers(0, 4, ROWS), "plan": RANDOM.choice(["x", "y", "z"], ROWS)}
)
LABEL = ((BANK["age"] + TELCO["calls"] + RANDOM.normal(size=ROWS)) > 1.5).astype(int)


def by_table(codes: pandas.Series) -> tuple[float, float]:
    """IV and AUC of a column whose values are its bins."""
    table = pandas.crosstab(codes, LABEL)
    shares = table / table.sum()
    woe = np.log(shares[1] / shares[0])
    iv = float(((shares[1] - shares[0]) * woe).sum())
    return iv, float(roc_auc_score(LABEL, woe.loc[codes].to_numpy()))


@pytest.fixture(scope="module")
def found() -> fedmq.Screen:
    return fedmq.screen(active=BANK, label=LABEL, passive={"telco": TELCO}, smallest_group=10)


def test_figures_are_those_of_the_joined_table(found: fedmq.Screen) -> None:
    columns = {column["name"]: column for column in found.columns}
    assert columns.keys() == {"age", "job", "calls", "plan"}
    for name, codes in (
        ("calls", TELCO["calls"]),
        ("plan", TELCO["plan"]),
        ("job", BANK["job"]),
        ("age", pandas.qcut(BANK["age"], 10, labels=False)),
    ):
        iv, auc = by_table(codes)
        assert columns[name]["iv"] == pytest.approx(iv), name
        assert columns[name]["auc"] == pytest.approx(auc), name


def test_a_data_frame_has_a_row_for_each_column_the_strongest_first(found: fedmq.Screen) -> None:
    frame = found.to_pandas()
    assert frame["iv"].is_monotonic_decreasing
    assert set(frame["party"]) == {"active", "telco"}
    assert frame.set_index("name").loc["calls", "type"] == "number"


def test_the_page_loads_nothing_and_has_the_figures(found: fedmq.Screen, tmp_path: Path) -> None:
    path = tmp_path / "screen.html"
    found.write_html(path)
    page = path.read_text()
    assert "telco: calls" in page and f"{found.columns[0]['iv']:.4f}" in page
    assert "http:" not in page and "https:" not in page
    assert "Metrics" not in page


def test_a_party_that_only_describes_and_shares_no_name_is_listed_by_number() -> None:
    found = fedmq.screen(
        active=BANK, label=LABEL, passive={"telco": TELCO}, names=False, measured=False
    )
    assert [column["name"] for column in found.columns if column["party"] == "telco"] == [None] * 2
    assert found.to_pandas()["iv"].isna().sum() == 2


def test_a_rule_marks_the_columns_that_meet_it() -> None:
    found = fedmq.screen(
        active=BANK, label=LABEL, passive={"telco": TELCO}, select={"iv": 0.1, "missing": 0.5}
    )
    frame = found.to_pandas()
    assert frame["selected"].tolist() == (frame["iv"] >= 0.1).tolist()
    assert found.found["selected"].keys() == {"active", "telco"}


def test_described_columns_meet_no_information_value() -> None:
    for rule, number in (({"iv": 0.0}, 2), ({"top": 9}, 2), ({"missing": 0.5}, 4)):
        found = fedmq.screen(
            active=BANK, label=LABEL, passive={"telco": TELCO}, measured=False, select=rule
        )
        assert sum(map(len, found.found["selected"].values())) == number


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"select": {"vi": 1}}, "select: .*vi"),
        ({"select": {"iv": -1}}, "select: iv"),
        ({"bins": 1}, "bins = 1: a whole number from 2 to 50"),
        ({"smallest_group": 0}, "smallest_group = 0"),
        ({"label": LABEL + 1}, "label in row"),
        ({"label": LABEL * 0}, "all labels are 0"),
        ({"label": LABEL[:9]}, "9"),
        ({"passive": {"Telco": TELCO}}, "Telco"),
    ],
)
def test_bad_input_is_one_clear_line(options: dict[str, object], why: str) -> None:
    given = {"active": BANK, "label": LABEL, "passive": {"telco": TELCO}, **options}
    with pytest.raises((ConfigError, DataError), match=why):
        fedmq.screen(**given)  # type: ignore[arg-type]


def test_the_active_party_sees_how_much_its_own_columns_are_alike(tmp_path: Path) -> None:
    bank = BANK.assign(years=BANK["age"] * 2 + RANDOM.normal(size=ROWS) * 0.01, none=1.0)
    found = fedmq.screen(active=bank, label=LABEL, passive={"telco": TELCO}, smallest_group=10)
    wanted = bank[["age", "years", "none"]].corr()
    np.testing.assert_allclose(found.correlation, wanted, atol=1e-4)
    vif = {column["name"]: column.get("vif") for column in found.columns}
    assert float(vif["age"] or 0) > 1000 and vif["none"] is None and vif["calls"] is None
    found.write_html(tmp_path / "screen.html")
    assert "Columns that are alike" in (tmp_path / "screen.html").read_text()


def test_of_columns_that_are_alike_the_stronger_one_is_selected() -> None:
    bank = BANK.assign(other=BANK["age"] + RANDOM.normal(size=ROWS) * 0.2)
    rule = {"iv": 0.0, "correlation": 0.9}
    found = fedmq.screen(
        active=bank, label=LABEL, passive={"telco": TELCO}, smallest_group=10, select=rule
    )
    strength = {column["name"]: column["iv"] for column in found.columns}
    left_out = {column["name"] for column in found.columns if not column["selected"]}
    assert left_out == {min(("age", "other"), key=lambda name: strength[name])}


# Correlations across parties


def wide() -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Two tables with columns of numbers that are alike, some values missing, and marks of few."""
    random = np.random.default_rng(8)
    age = BANK["age"]
    bank = BANK.assign(years=age + random.normal(size=ROWS), constant=1.0)
    telco = TELCO.assign(
        income=np.exp(age),
        usage=age + random.normal(size=ROWS) * 0.5,
        few=(np.arange(ROWS) < 5).astype(float),
    )
    telco.loc[random.random(ROWS) < 0.2, "usage"] = np.nan
    return bank, telco


@pytest.fixture(scope="module")
def correlated() -> fedmq.Screen:
    bank, telco = wide()
    return fedmq.screen(
        active=bank,
        label=LABEL,
        passive={"telco": telco, "retail": telco[["usage"]] ** 2},
        smallest_group=10,
        correlation=True,
    )


def test_coefficients_across_parties_are_those_of_the_joined_table_to_a_hundredth(
    correlated: fedmq.Screen,
) -> None:
    frame = correlated.correlation
    assert list(frame.index) == [
        *("age", "years", "constant"),
        *("telco: calls", "telco: income", "telco: usage"),  # nothing of a mark of few people
        "retail: usage",
    ]
    bank, telco = wide()
    joined = pandas.concat([bank, telco.add_prefix("telco: ")], axis=1)
    joined = joined.select_dtypes("number").drop(columns=["telco: few", "constant"])
    wanted = joined.fillna(joined.mean()).corr()
    shown = frame.loc[wanted.index, wanted.index]
    np.testing.assert_allclose(shown, wanted, atol=0.0106)
    of_telco = shown.loc[[name for name in wanted.index if name.startswith("telco")]]
    np.testing.assert_array_equal(of_telco, of_telco.round(2))
    assert frame["constant"].isna().all()  # compared with nothing
    assert "telco: few" not in frame and "telco: plan" not in frame


def test_columns_of_passive_parties_are_correlated_with_one_another(
    correlated: fedmq.Screen,
) -> None:
    bank, telco = wide()
    joined = pandas.concat(
        [
            bank[["age", "years"]],
            telco[["calls", "income", "usage"]].add_prefix("telco: "),
            (telco[["usage"]] ** 2).add_prefix("retail: "),
        ],
        axis=1,
    )
    wanted = joined.fillna(joined.mean()).corr()
    frame = correlated.correlation.loc[wanted.index, wanted.index]
    np.testing.assert_allclose(frame, wanted, atol=0.0156)  # noise of both, and rounding
    np.testing.assert_array_equal(frame, frame.T)

    # Variance inflation is that of regressions on all others, as far as hundredths tell.
    inverse = np.linalg.inv(wanted)
    near = 0.02 * (np.abs(inverse).sum(axis=1) ** 2)
    parties = correlated.found["parties"]
    told = [*parties["active"]["whole"]["vif"]]
    told += [
        column["vif"]
        for party in ("telco", "retail")
        for column in parties[party]["columns"]
        if column.get("vif") is not None
    ]
    for name, found, bound in zip(wanted.index, told, near, strict=True):
        assert found == pytest.approx(inflation(joined, name), abs=bound), name


@pytest.mark.parametrize("seed", [1, 2])
def test_of_whole_tables_it_is_pandas_corr_and_the_inflation_of_regressions(seed: int) -> None:
    random = np.random.default_rng(seed)
    base = random.normal(size=(1500, 1))
    held = {
        party: pandas.DataFrame(
            random.gamma(2, size=(1500, 3)) + random.normal(size=3) * base,
            columns=[f"{party}{place}" for place in range(3)],
        ).astype(np.float32)
        for party in ("bank", "telco", "retail")
    }
    found = fedmq.screen(
        active=held["bank"],
        label=random.random(1500) < 0.3,
        passive={"telco": held["telco"], "retail": held["retail"]},
        measured=False,
        correlation=True,
    )
    joined = pandas.concat(held.values(), axis=1)
    wanted, told = joined.corr().to_numpy(), found.correlation.to_numpy()
    # Exact at home; in hundredths of one other party; of two others under noise of both.
    bound = np.full((9, 9), 0.0106)
    bound[3:, 3:] = 0.0156
    for at, most in ((0, 1e-4), (3, 0.0051), (6, 0.0051)):
        bound[at : at + 3, at : at + 3] = most
    assert (np.abs(told - wanted) <= bound).all()
    inverse = np.abs(np.linalg.inv(wanted))
    near = 1.2 * np.diag(inverse @ bound @ inverse)  # of the first order, and a fifth more
    parties = found.found["parties"]
    factors = [*parties["active"]["whole"]["vif"]]
    factors += [one["vif"] for party in ("telco", "retail") for one in parties[party]["columns"]]
    for name, factor, most in zip(joined, factors, near, strict=True):
        assert factor == pytest.approx(inflation(joined, name), abs=most), name


def inflation(table: pandas.DataFrame, name: str) -> float:
    """1 / (1 - R²) of the regression of a column on all others, and a constant."""
    whole = table.fillna(table.mean())
    others = np.column_stack([whole.drop(columns=name), np.ones(len(whole))])
    column = whole[name].to_numpy()
    left = column - others @ np.linalg.lstsq(others, column, rcond=None)[0]
    return float(column.var() / left.var())


def test_the_page_has_a_map_of_correlations(correlated: fedmq.Screen, tmp_path: Path) -> None:
    correlated.write_html(tmp_path / "screen.html")
    page = (tmp_path / "screen.html").read_text()
    value = correlated.correlation.loc["age", "telco: usage"]
    assert f"<title>active: age, telco: usage: {value:.2f}</title>" in page
    value = correlated.correlation.loc["telco: usage", "retail: usage"]
    assert f"<title>telco: usage, retail: usage: {value:.2f}</title>" in page
    assert "Own columns beside those of all" in page
    assert "Own columns beside those of telco" in page
    assert "http:" not in page and "https:" not in page


def test_a_column_that_another_party_holds_as_well_is_infinitely_inflated() -> None:
    telco = pandas.DataFrame({"same": -2 * BANK["age"] + 7, "other": TELCO["calls"]})
    found = fedmq.screen(
        active=BANK, label=LABEL, passive={"telco": telco}, smallest_group=10, correlation=True
    )
    vif = {column["name"]: column.get("vif") for column in found.columns}
    assert vif["same"] == "infinite" and 1 <= float(vif["other"] or 0) < 1.2
    assert found.found["parties"]["telco"]["joint"]["vif"] == ["infinite"]
    assert found.correlation.loc["age", "telco: same"] <= -0.99


def test_without_a_wish_nothing_is_correlated_across_parties(found: fedmq.Screen) -> None:
    assert list(found.correlation.index) == ["age"]
    assert "uncorrelated" not in found.found["parties"]["telco"]


def test_correlations_without_labels_and_names() -> None:
    bank, telco = wide()
    found = fedmq.screen(
        active=bank,
        label=LABEL,
        passive={"telco": telco},
        smallest_group=10,
        names=False,
        measured=False,
        correlation=True,
    )
    assert list(found.correlation.index)[3:] == [f"telco: column {at}" for at in (1, 3, 4)]
    assert all("iv" not in one for one in found.found["parties"]["telco"]["columns"])


def test_of_two_columns_of_another_party_that_are_alike_the_stronger_one_is_selected() -> None:
    telco = TELCO.assign(twice=TELCO["calls"] + RANDOM.normal(size=ROWS) * 0.1)
    found = fedmq.screen(
        active=BANK,
        label=LABEL,
        passive={"telco": telco},
        smallest_group=10,
        correlation=True,
        select={"iv": 0.0, "correlation": 0.9},
    )
    strength = {column["name"]: column["iv"] for column in found.columns}
    left_out = {column["name"] for column in found.columns if not column["selected"]}
    assert left_out == {min(("calls", "twice"), key=lambda name: strength[name])}


# Labels of several classes, and of numbers


CLASSES = (TELCO["calls"] + RANDOM.integers(0, 2, ROWS)) % 3
INCOME = np.exp(RANDOM.normal(size=ROWS)) * 1000 + 400 * TELCO["calls"]


def binned(name: str) -> pandas.Series:
    table = TELCO if name in TELCO else BANK
    return pandas.qcut(BANK["age"], 10, labels=False) if name == "age" else table[name]


def test_chi_square_of_several_classes_is_scipys_on_the_joined_table(tmp_path: Path) -> None:
    found = fedmq.screen(
        active=BANK,
        label=CLASSES,
        passive={"telco": TELCO},
        smallest_group=10,
        label_type="classes",
        select={"p": 1e-6},
    )
    frame = found.to_pandas().set_index("name")
    assert {"chi2", "p"} <= set(frame) and not {"iv", "auc", "f"} & set(frame)
    for name in ("age", "job", "calls", "plan"):
        wanted = scipy.stats.chi2_contingency(
            pandas.crosstab(binned(name), CLASSES), correction=False
        )
        assert frame.loc[name, "chi2"] == pytest.approx(wanted.statistic), name
        assert frame.loc[name, "p"] == pytest.approx(wanted.pvalue), name
    assert frame.index[0] == "calls" and frame["p"].is_monotonic_increasing
    assert frame["selected"].tolist() == [True, False, False, False]
    assert found.found["classes"] == np.bincount(CLASSES).tolist()
    found.write_html(tmp_path / "screen.html")
    page = (tmp_path / "screen.html").read_text()
    assert "class 2" in page and "chi2" in page and "weight of evidence" not in page


def test_f_of_a_label_of_numbers_is_scipys_on_the_joined_table(tmp_path: Path) -> None:
    found = fedmq.screen(
        active=BANK,
        label=INCOME,
        passive={"telco": TELCO},
        smallest_group=10,
        label_type="number",
        select={"top": 1},
    )
    frame = found.to_pandas().set_index("name")
    for name in ("age", "job", "calls", "plan"):
        groups = [
            of.to_numpy(np.float64) for _, of in INCOME.astype(np.float32).groupby(binned(name))
        ]
        wanted = scipy.stats.f_oneway(*groups)
        assert frame.loc[name, "f"] == pytest.approx(wanted.statistic, rel=1e-3), name
        assert frame.loc[name, "p"] == pytest.approx(wanted.pvalue, rel=1e-2), name
    assert frame.index[frame["selected"]].tolist() == ["calls"]
    [calls] = [column for column in found.columns if column["name"] == "calls"]
    means = sorted(INCOME.groupby(TELCO["calls"]).mean())
    assert sorted(one["mean"] for one in calls["bins"]) == pytest.approx(means, rel=1e-3)
    found.write_html(tmp_path / "screen.html")
    assert "mean label" in (tmp_path / "screen.html").read_text()


def test_a_binary_label_has_a_chi_square_beside_its_information_value(found: fedmq.Screen) -> None:
    frame = found.to_pandas().set_index("name")
    wanted = scipy.stats.chi2_contingency(pandas.crosstab(TELCO["plan"], LABEL), correction=False)
    assert frame.loc["plan", "chi2"] == pytest.approx(wanted.statistic)
    assert frame.loc["plan", "p"] == pytest.approx(wanted.pvalue)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"label_type": "classes", "label": CLASSES + 0.5}, "label in row 1 is .*whole number"),
        ({"label_type": "classes", "label": CLASSES + 50}, "from 0 to 49"),
        ({"label_type": "number", "label": INCOME * np.nan}, "label in row 1"),
        ({"label_type": "number", "label": INCOME * 0 + 7}, "all labels are 7; several are"),
        ({"label_type": "classes", "select": {"iv": 0.1}}, "iv is of a binary label"),
        ({"label_type": "ranks"}, "label_type"),
    ],
)
def test_labels_of_another_type_are_refused_in_one_line(
    options: dict[str, object], why: str
) -> None:
    given = {"active": BANK, "label": LABEL, "passive": {"telco": TELCO}, **options}
    with pytest.raises((ConfigError, DataError), match=why) as raised:
        fedmq.screen(**given)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)


def test_hidden_sums_tell_the_step_of_an_information_value_and_no_count() -> None:
    hidden = fedmq.screen(
        active=BANK, label=LABEL, passive={"telco": TELCO}, smallest_group=10, sums="hidden"
    )
    columns = {column["name"]: column for column in hidden.columns}
    for name in ("calls", "plan"):
        iv, _ = by_table(TELCO[name])
        assert columns[name]["iv"] <= iv < (columns[name]["iv_below"] or np.inf)
        assert columns[name].keys().isdisjoint({"bins", "auc", "ks", "chi2", "p"})
    assert columns["age"]["iv"] == pytest.approx(by_table(pandas.qcut(BANK["age"], 10))[0])
    assert {"iv", "iv_below"} <= set(hidden.to_pandas().columns)


def test_what_is_below_iv_from_is_not_told_and_not_selected() -> None:
    hidden = fedmq.screen(
        active=BANK,
        label=LABEL,
        passive={"telco": TELCO},
        smallest_group=10,
        sums="hidden",
        iv_from=0.1,
        select={"iv": 0.1},
    )
    [plan] = [column for column in hidden.columns if column["name"] == "plan"]
    assert by_table(TELCO["plan"])[0] < 0.1
    assert (plan["iv"], plan["iv_below"], plan["selected"]) == (0.0, 0.1, False)
    [calls] = [column for column in hidden.columns if column["name"] == "calls"]
    assert calls["selected"]


def test_the_page_of_hidden_sums_has_steps(tmp_path: Path) -> None:
    hidden = fedmq.screen(
        active=BANK, label=LABEL, passive={"telco": TELCO}, smallest_group=10, sums="hidden"
    )
    hidden.write_html(tmp_path / "look.html")
    page = (tmp_path / "look.html").read_text()
    assert "sums are hidden: IV is told in steps of 0.02, from 0.02 on" in page
    [plan] = [column for column in hidden.columns if column["name"] == "plan"]
    assert f"{plan['iv']:.2f} to {plan['iv_below']:.2f}" in page


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"sums": "shown", "iv_from": 0.1}, 'iv_from goes with sums = "hidden"'),
        ({"sums": "hidden", "label_type": "number"}, 'goes with label_type = "binary" alone'),
        ({"sums": "hidden", "select": {"p": 0.1}}, "p takes sums that are shown"),
        ({"sums": "hidden", "iv_from": 2.0}, "iv_from"),
    ],
)
def test_what_does_not_go_with_hidden_sums_is_named(keys: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        fedmq.screen(active=BANK, label=LABEL, passive={"telco": TELCO}, **keys)  # type: ignore[arg-type]


def test_sums_of_very_few_people_are_not_hidden() -> None:
    few = np.arange(ROWS) < 7
    with pytest.raises(DataError, match="active: 7 people of one label are looked at"):
        fedmq.screen(active=BANK, label=few, passive={"telco": TELCO}, sums="hidden")

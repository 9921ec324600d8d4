"""The sections of a dossier, from what is known of a model: true of it, and of nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from fpdf import FPDF
from fpdf.table import Row

from fedmq.boosting.model.cross_validated import CrossValidated
from fedmq.boosting.params import TrainParams
from fedmq.evaluation.dossier import Sources, dossier_of
from fedmq.evaluation.dossier_page import Section, html_of_dossier, pdf_of_dossier
from fedmq.evaluation.report import HELD_OUT, ROWS_FROM, Figure, Report
from fedmq.party.card.model_card import CardEngine, CardSelection, CardTraining, ModelCard, Worth
from fedmq.party.card.signed_card import CardFile
from fedmq.party.online.drift import Drift, KeptDrift

CARD = ModelCard(
    model="credit",
    made="2026-11-01T00:00:00+00:00",
    federation="demo",
    parties=("bank", "telco"),
    objective="binary:logistic",
    params={"eta": 0.3},
    trees=3,
    departures=(),
    withheld={},
    total_gain={"bank": 1.0, "telco": 2.0},
    splits={"bank": 1, "telco": 2},
)
KNOWN = Sources(
    party="bank",
    purpose="",
    label=("label",),
    file=CardFile(card=CARD),
    signatures=(),
    report=None,
    columns=None,
    importance=(("bank", "x0", 1.0), ("telco", "", 2.0)),
    packages=(("fedmq", "0", "Apache-2.0"),),
    made="2026-11-02T00:00:00+00:00",
)


def section(title: str, sources: Sources = KNOWN) -> Section:
    return next(of for of in dossier_of(sources).sections if of.title == title)


def report(**facts: str) -> Report:
    evaluated = {"rows evaluated": "40 of eval", **facts}
    made = "2026-11-02T00:00:00+00:00"
    return Report(model="credit", made=made, facts=evaluated, metrics={"auc": Figure(value=0.75)})


def test_figures_stand_below_the_rows_that_they_are_of() -> None:
    held_out = replace(KNOWN, report=report(**{ROWS_FROM: HELD_OUT}))
    other = replace(KNOWN, report=report(**{ROWS_FROM: "the file later.csv"}))
    older = replace(KNOWN, report=report())
    title = "How good it is"
    assert section(title, held_out).tables[0].name == "On held-out rows"
    assert section(title, other).tables[0].name == "On rows of the file later.csv"
    assert section(title, older).tables[0].name == "On 40 of eval"
    assert not any("held out" in line for line in section(title, held_out).missing)
    assert "on rows that the training held out" in section(title, other).missing[0]


def seen(number: int, name: str = "") -> dict[str, Any]:
    return {"column": number, "name": name, "type": "number", "missing": 0.5, "distinct": 9}


SCREEN = {
    "screen": "look",
    "selected": {"bank": [1], "telco": [1, 2]},
    "parties": {
        "bank": {"columns": [seen(1, "x0"), seen(2, "x1")]},
        "telco": {"columns": [seen(1), seen(2), seen(3)]},
        "retail": {"refused": "retail shows nothing"},
    },
}


def test_selection_is_what_this_party_knows_of_it() -> None:
    offered = replace(KNOWN, offered=("x0", "x2"), ignored=("town",), named={"telco": ["calls"]})
    facts = section("How it was made", offered).facts
    assert facts["columns of bank"] == "2: x0, x2"
    assert facts["left out by bank, as of today"] == "town"
    assert facts["columns of telco"].endswith("bank is told that it split by calls")
    assert "keeps none" in facts["screens"]
    assert section("How it was made").facts["columns of telco"].endswith("told nothing of them")


def test_columns_that_the_job_selected_stand_as_in_the_card() -> None:
    selection = CardSelection(
        screen="look", made="2026-10-01T00:00:00+00:00", alignment="people", rows=90,
        looked_at=80, rule={"iv": 0.02}, columns={"bank": (2, 5), "telco": (1, 7)},
    )  # fmt: skip
    engine = CardEngine(name="plain", exact=True, active_learns="", passive_learns="")
    training = CardTraining(
        session="12ab", rows=70, held_out=20, began="", ended="", engine=engine,
        selection=selection,
    )  # fmt: skip
    card = CARD.model_copy(update={"training": training})
    facts = section("How it was made", replace(KNOWN, file=CardFile(card=card))).facts
    assert facts["columns"] == "2 of 5 of bank, 1 of 7 of telco"
    assert facts["selected by"].startswith("iv = 0.02; screen look of 2026-10-01")


def test_screens_before_the_training_say_what_they_selected_and_what_of_it_was_offered() -> None:
    looked = replace(KNOWN, offered=("x0", "x2"), screens=[("2026-10-01", SCREEN)])
    found = section("How it was made", looked)
    assert "screens" not in found.facts
    assert found.tables[1].rows == (
        ("look", "2026-10-01", "bank", 2, 1, 1),
        ("look", "2026-10-01", "telco", 3, 2, None),
        ("look", "2026-10-01", "retail", "refused", None, None),
    )


def test_parameters_have_the_constraints_that_a_card_leaves_out() -> None:
    params = {
        "eta": 0.3,
        "monotone_constraints": {"income": -1, "telco.late": 1},
        "interaction_constraints": [["income", "telco.late"], ["*"]],
    }
    bins = {"income": (1000.0, 2000.5), "age": 10}
    found = section("How it was made", replace(KNOWN, params=params, signs={"age": 1}, bins=bins))
    shown = dict(found.tables[0].rows)
    assert shown["monotone_constraints"] == "income falls, telco.late rises"
    assert shown["interaction_constraints"] == "together: income, telco.late; together: *"
    assert found.facts["monotone by [data] of bank, as of today"] == "age rises"
    assert found.facts["cut by [data] of bank, as of today"] == (
        "income at 1000, 2000.5; age into 10 bins at most"
    )


def test_points_that_no_file_answers_are_the_provider_s_and_no_section_claims_them() -> None:
    *answered, added = dossier_of(KNOWN).sections
    assert added.title == "What the provider must add"
    for point in ("4", "5", "6", "7", "8"):
        assert any(line.startswith(f"Annex IV {point}: ") for line in added.missing), point
        for of in answered:
            claimed, _, _ = of.answers.partition(";")
            assert not re.search(rf"[ ,]{point}(?=,| in part|$)", claimed), of.title


def test_parts_of_the_supervisory_guidance_have_their_own_headings() -> None:
    parts = {
        "IV, Model Development and Model Use",
        "V, Model Validation and Monitoring",
        "VI, Governance and Controls",
        "VII, Vendor and Other Third-Party Products",
    }
    named = [of.answers.split("; SR 26-2 ")[1:] for of in dossier_of(KNOWN).sections]
    assert all(named) and {part for of in named for part in of} == parts


STAYS = "Whether it is as good for everybody, and stays so"


def drift(rows: int, *found: Drift) -> KeptDrift:
    return KeptDrift(rows, 1000, 0.25, found)


def test_what_is_there_over_time_is_not_said_to_be_missing() -> None:
    nothing = section(STAYS)
    assert any(line.startswith("over time") for line in nothing.missing)
    newest = section(STAYS, replace(KNOWN, newest="since"))
    assert "by since" in newest.facts["held out"]
    moved = Drift("credit", "x0", 0.31, 2000, True)
    counted = section(STAYS, replace(KNOWN, drift=drift(2000, moved), drifting=["telco"]))
    assert counted.tables[0].rows == (("x0", 0.31, 2000, "alarm"),)
    assert counted.facts["other parties whose columns drift"] == "telco"
    for found in (newest, counted):
        assert not any(line.startswith("over time") for line in found.missing)
    few = section(STAYS, replace(KNOWN, drift=drift(30)))
    assert few.facts["people scored online"] == "30; drift is said of 1,000 on"
    assert any(line.startswith("over time") for line in few.missing)


def test_columns_that_other_parties_showed_are_there_and_not_missing() -> None:
    title = "What it learned from"
    assert "columns of telco" in section(title).missing[-1]
    assert not any("telco" in line for line in section(title, named({"telco": []})).missing)
    told = {"columns": [{**seen(1), "iv": 0.2}]}
    look = {"screen": "look", "parties": {"telco": told}, "selected": None}
    found = section(title, replace(KNOWN, screens=[("2026-10-01", look)]))
    assert found.tables[0].rows == (("column 1", "number", "50.00%", 9, 0.2),)
    assert not any("telco" in line for line in found.missing)


def named(columns: Mapping[str, Sequence[str]]) -> Sources:
    return replace(KNOWN, named=columns)


def test_figures_of_attacks_are_there_or_the_command_that_makes_them() -> None:
    title = "What the training showed to whom"
    assert "recordings =" in section(title).missing[0]
    recorded = section(title, replace(KNOWN, recording="r/1.1.bank.recording"))
    assert "fedmq audit r/1.1.bank.recording" in recorded.missing[0]
    attack = {"attack": "majority", "target": "label", "where": "first tree", "measure": "purity"}
    finding = {**attack, "value": 0.6, "chance": 0.5, "succeeds": True}
    audit = {"party": "telco", "engine": "plain", "session": "s", "findings": [finding]}
    found = section(title, replace(KNOWN, audits=[("telco.json", audit)]))
    assert not found.missing
    assert found.tables[0].name == "Attacks on what telco saw of this training"
    assert found.tables[0].rows[0][4:] == (0.6, 0.5, "succeeds")


def test_a_cross_validation_says_how_its_parameters_differ_from_the_model_s() -> None:
    title = "How good it is"
    assert any("fedmq cv" in line for line in section(title).missing)
    params = TrainParams(num_boost_round=2)
    figures = {"test-auc-mean": (0.6, 0.7), "test-auc-std": (0.1, 0.2)}
    parties = ("bank", "telco")
    cross = CrossValidated(
        name="credit-cv", parties=parties, folds=3, params=params, figures=figures, rounds=2
    )
    same = params.model_dump(mode="json", exclude_none=True)
    found = section(title, replace(KNOWN, cross_validated=cross, params=same)).tables[0]
    assert found.name == "Cross-validation with 3 folds, after round 2"
    assert found.rows == (("test-auc", 0.7, 0.2),)
    assert found.about == "Its parameters are the model's."
    other = section(title, replace(KNOWN, cross_validated=cross, params={**same, "eta": 0.5}))
    assert "but for eta = 0.3" in other.tables[0].about
    assert not any("fedmq cv" in line for line in other.missing)


def test_what_a_partner_is_worth_comes_from_the_card_or_from_fallback_models() -> None:
    title = "How good it is"
    assert any("worth" in line for line in section(title).missing)
    worth = Worth(
        model="credit-without-telco", metric="eval-auc", value=0.8, without=0.7, difference=0.1
    )
    found = section(title, replace(KNOWN, worth={"telco": worth}))
    assert found.tables[0].rows == (("telco", "eval-auc", 0.8, 0.7, 0.1),)
    assert not any("worth" in line for line in found.missing)


def test_the_learning_curve_is_there_without_an_evaluation() -> None:
    history = {"train-auc": (0.6, 0.7), "eval-auc": (0.5, 0.6)}
    [curve] = section("How good it is", replace(KNOWN, history=history)).charts
    assert [line.name for line in curve.lines] == ["train", "eval"]


def test_a_second_person_s_yes_is_there_as_the_audit_log_has_it() -> None:
    about = {"activation": "credit", "asked_by": "anna", "session": "s"}
    log = [
        {"at": "1", "event": "owner asked", **about},
        {"at": "2", "event": "owner agreed", "by": "olga", **about},
        {"at": "3", "event": "agreed", "training": "credit"},
    ]
    alone = section("Who put it to use")
    assert any("second person" in line for line in alone.missing) and not alone.tables
    found = section("Who put it to use", replace(KNOWN, consents=log, second_person=True))
    assert not found.missing
    assert found.tables[0].rows == (
        ("1", "owner asked", "anna", None, None),
        ("2", "owner agreed", "anna", "olga", None),
    )


def test_answers_are_signed_shown_or_named_as_not_shown() -> None:
    title = "Whether the other parties' answers were honest"
    hidden = section(title, replace(KNOWN, session="0123", signed={"telco": 3}))
    assert hidden.tables[0].rows == (("telco", "3 trees", "its transcript was not shown"),)
    assert "fedmq transcript export PARTY 0123" in hidden.missing[0]
    shown = section(title, replace(KNOWN, session="0123", verdicts={"telco": "honest: all"}))
    assert shown.tables[0].rows == (("telco", "0 trees", "honest: all"),) and not shown.missing


CURVES = {"train-auc": (0.6, 0.7), "eval-auc": (0.5, 0.6)}
WRITTEN = ("m\N{LATIN SMALL LETTER L WITH STROKE}ody \N{GREEK SMALL LETTER OMEGA}",)


def on_paper(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is written onto the pages of a PDF, word for word."""
    said: list[str] = []
    whole, cells = FPDF.multi_cell, Row.cell

    def multi_cell(self: FPDF, *args: Any, text: str, **kwargs: Any) -> Any:
        said.append(text)
        return whole(self, *args, text=text, **kwargs)

    def cell(self: Row, text: str, *args: Any, **kwargs: Any) -> Any:
        said.append(text)
        return cells(self, text, *args, **kwargs)

    monkeypatch.setattr(FPDF, "multi_cell", multi_cell)
    monkeypatch.setattr(Row, "cell", cell)
    return said


def test_a_page_has_a_figure_for_each_chart() -> None:
    page = html_of_dossier(dossier_of(replace(KNOWN, history=CURVES)))
    assert page.count("<svg") == 1 and "Learning curve, auc" in page
    assert "<svg" not in html_of_dossier(dossier_of(KNOWN))


def test_charts_are_drawn_on_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[Any] = []
    monkeypatch.setattr(FPDF, "polyline", lambda _, points: lines.append(points))
    pdf_of_dossier(dossier_of(replace(KNOWN, history=CURVES)))
    assert [len(points) for points in lines] == [2, 2]


def test_paper_has_letters_beyond_latin_1_where_dejavu_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("matplotlib")
    said = on_paper(monkeypatch)
    assert pdf_of_dossier(dossier_of(replace(KNOWN, label=WRITTEN))).startswith(b"%PDF-")
    assert WRITTEN[0] in said and not any("not in the fonts" in text for text in said)


def test_without_that_font_letters_lose_their_marks_and_the_first_page_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedmq.evaluation.dossier_page._font_folder", lambda: None)
    said = on_paper(monkeypatch)
    pdf_of_dossier(dossier_of(replace(KNOWN, label=WRITTEN)))
    assert "mlody ?" in said and any("fedmq[audit]" in text for text in said)
    said.clear()
    pdf_of_dossier(dossier_of(KNOWN))
    assert not any("not in the fonts" in text for text in said)

"""``fedmq models dossier``: what a validator asks for, and what is not there, by name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path

import click
import pytest
import pytest_asyncio
from fpdf import FPDF

from fedmq.cli.main import cli
from fedmq.errors import ConfigError
from fedmq.evaluation.dossier_page import Dossier, pdf_of_dossier
from fedmq.evaluation.report import Report
from fedmq.leakage.attacks.finding import Finding
from fedmq.leakage.audit import AuditReport
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.store.documents import training_records
from fedmq.workbench.connection import connect
from fedmq.workbench.evaluation import kept_reports
from tests.cli.command import Outcome, fedmq
from tests.party.daemons_in_memory import DaemonsInMemory

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def federation(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DaemonsInMemory]:
    folder = tmp_path_factory.mktemp("dossier")
    with pytest.MonkeyPatch.context() as patch:
        async with DaemonsInMemory(folder, patch) as demo:
            params = {"num_boost_round": 3, "max_depth": 3, "max_bin": 8, "min_child_weight": 0.1}
            params |= {"monotone_constraints": {"x0": 1}}
            job = TrainingJob(model="credit", engine="plain", evaluation=0.4, params=params)
            await demo.ask("bank", "train", job=job.model_dump(mode="json"))
            await demo.ask("bank", "activate", model="credit", name="production", mode=None)
            yield demo


async def written(demo: DaemonsInMemory, name: str, *words: str) -> tuple[Outcome, Path]:
    path = demo.folder / name
    party = demo.folder / "bank" / "party.toml"
    asked = ("models", "dossier", party, "credit", "--output", path, *words)
    return await asyncio.to_thread(fedmq, *asked), path


def read(path: Path) -> Dossier:
    return Dossier.model_validate_json(path.read_text())


def options_of(line: str) -> set[str]:
    """The options of the commands that ``line`` names, and of the one that wrote it."""
    commands = [words.split() for words in line.split("fedmq ")[1:]]
    return {option for words in [["models", "dossier"], *commands] for option in options(words)}


def options(words: list[str]) -> set[str]:
    command: click.Command | None = cli
    for word in words:
        if isinstance(command, click.Group):
            command = command.get_command(click.Context(command), word)
    assert command is not None, words
    return {name for of in command.params for name in of.opts}


async def test_it_says_what_there_is_and_names_what_there_is_not(
    federation: DaemonsInMemory,
) -> None:
    purpose = ("--purpose", "whether a loan is given", "--samples", "3", "--json")
    done, path = await written(federation, "dossier.json", *purpose)
    found = Dossier.model_validate_json(path.read_text())
    assert len(found.sections) == 13
    first, learned, *_ = found.sections
    assert first.facts["purpose"] == "whether a loan is given"
    assert not first.missing
    assert all("Annex IV" in of.answers and "SR 26-2" in of.answers for of in found.sections)
    columns = {row[0]: row for row in learned.tables[0].rows}
    assert columns["label"][1] == "label" and "x0" in columns
    by_title = {of.title: of for of in found.sections}
    parameters = dict(by_title["How it was made"].tables[0].rows)
    assert parameters["monotone_constraints"] == "x0 rises" and parameters["max_depth"] == "3"
    assert by_title["How it was made"].facts["columns of bank"] == "2: x0, x1"
    materials = {row[0]: row[1:] for row in by_title["What it runs on"].tables[0].rows}
    assert materials["numpy"][0] == version("numpy") and "BSD-3-Clause" in str(
        materials["numpy"][1]
    )
    assert {"fedmq", "python", "fpdf2", "scikit-learn"} <= materials.keys()
    gains = by_title["What it looks at"]
    reasons = gains.tables[1]
    assert reasons.headers[-1] == "bias" and len(reasons.rows) == 3 and not gains.missing
    log = by_title["Who has agreed"].tables[-1]
    assert any("train" in str(row) for row in log.rows)
    use = by_title["Who put it to use"]
    assert use.facts["answers as"] == "production"
    assert [row[1] for row in use.tables[0].rows] == [
        "command: activate",
        "command ended: activate",
    ]
    missing = json.loads(done.out)["missing"]
    for line in missing:
        used = {word for word in line.replace(",", "").split() if word.startswith("--")}
        assert used <= options_of(line), line
    assert "an evaluation: fedmq evaluate PARTY MODEL --output report" in missing
    assert "signatures of a card: fedmq models card PARTY MODEL --ask" in missing


async def test_an_evaluation_on_other_rows_is_not_called_held_out(
    federation: DaemonsInMemory,
) -> None:
    party, later = federation.folder / "bank" / "party.toml", federation.folder / "later.csv"
    later.write_text("id,label\n" + "".join(f"p{row:02},{row % 2}\n" for row in range(20)))
    output = federation.folder / "other"
    asked = ("evaluate", party, "credit", "--rows", later, "--samples", "0", "--output", output)
    await asyncio.to_thread(fedmq, *asked)
    _, path = await written(federation, "dossier.json")
    found = next(of for of in read(path).sections if of.title == "How good it is")
    names = [table.name for table in found.tables]
    assert "On rows of the file later.csv" in names and "On held-out rows" not in names
    assert "on rows that the training held out" in found.missing[0]


@pytest.mark.parametrize(
    ("folder", "content", "line"),
    [
        (
            "reports",
            "{",
            "reports/credit.json: is damaged; delete it, and evaluate the model again",
        ),
        (
            "reports",
            '{"version": 2}',
            "reports/credit.json: version 2 is unknown; this fedmq reads",
        ),
        ("cards", "[]", "cards/credit.json: not a model card: file: "),
        (
            "cards",
            '{"card": {"version": 2}}',
            "cards/credit.json: version 2 is unknown; this fedmq",
        ),
    ],
)
async def test_a_damaged_file_or_one_of_a_later_version_is_one_line_that_names_it(
    federation: DaemonsInMemory, folder: str, content: str, line: str
) -> None:
    path = federation.folder / "bank" / "state" / folder / "credit.json"
    path.parent.mkdir(exist_ok=True)
    before = path.read_text() if path.exists() else None
    path.write_text(content)
    try:
        done, file = await written(federation, "never.json")
    finally:
        path.unlink() if before is None else path.write_text(before)
    assert done.code == 4 and line in done.error and done.err.count("\n") == 1
    assert not file.exists()


async def test_an_audit_of_this_training_is_taken_and_one_of_another_is_refused(
    federation: DaemonsInMemory,
) -> None:
    state = federation.folder / "bank" / "state"
    record = training_records(state).read("credit")
    finding = Finding("majority", "label", "nodes seen, first tree", "purity", 0.6, 0.5)
    file = federation.folder / "telco.json"
    file.write_text(AuditReport("telco", "plain", (finding,), record.session).dumps())
    _, path = await written(federation, "dossier.json", "--audit", str(file))
    showed = next(of for of in read(path).sections if of.title.startswith("What the training"))
    assert showed.tables[0].rows[0][0] == "majority" and not showed.missing
    file.write_text(AuditReport("telco", "plain", (finding,), "another").dumps())
    done, path = await written(federation, "never.json", "--audit", str(file))
    assert done.code == 4 and not path.exists()
    assert done.error == f"{file}: an audit of session another, not of the training of credit"


async def test_a_report_of_an_earlier_model_of_the_name_is_left_out_and_said_to_be(
    federation: DaemonsInMemory,
) -> None:
    kept = kept_reports(federation.folder / "bank" / "state")
    before = kept.find("credit")
    earlier = Report(model="credit", made="2020-01-01T00:00:00+00:00", facts={}, metrics={})
    kept.keep("credit", earlier)
    done, _ = await written(federation, "dossier.json")
    kept.forget("credit") if before is None else kept.keep("credit", before)
    assert "an evaluation, for that on file is of an earlier model of this name:" in done.out


@pytest.mark.long
async def test_after_an_evaluation_and_a_card_it_has_both(federation: DaemonsInMemory) -> None:
    party, folder = federation.folder / "bank" / "party.toml", federation.folder / "report"
    await asyncio.to_thread(fedmq, "evaluate", party, "credit", "--output", folder)
    card = federation.folder / "credit.card.json"
    await asyncio.to_thread(fedmq, "models", "card", party, "credit", "--output", card)
    done, path = await written(federation, "dossier.html")
    page = path.read_text()
    assert "On held-out rows" in page and "auc" in page and "95 % from" in page
    assert "not here: reasons of some scores: none were asked for; give --samples 5" in done.out
    assert "an evaluation:" not in done.out
    assert page.count("<svg") > 5 and "Learning curve" in page
    loads = ("<script", "src=", "href=", "url(", "@import")  # packages are called http, too
    assert not any(word in page for word in loads)


async def test_a_program_beside_the_daemon_has_the_same(federation: DaemonsInMemory) -> None:
    party = federation.folder / "bank" / "party.toml"

    def made() -> Dossier:
        return connect(party).models["credit"].dossier("whether a loan is given", samples=2)

    found = await asyncio.to_thread(made)
    options = ("--purpose", "whether a loan is given", "--samples", "2")
    _, path = await written(federation, "dossier.json", *options)
    assert found.model_copy(update={"made": ""}) == read(path).model_copy(update={"made": ""})
    found.write(federation.folder / "program.html")
    with pytest.raises(ConfigError, match=r"name a file that ends in .html, .pdf or .json"):
        found.write(federation.folder / "program.txt")


async def test_on_paper_it_is_a_pdf_with_the_same_headings(federation: DaemonsInMemory) -> None:
    materials = federation.folder / "bom.json"
    _, path = await written(federation, "dossier.pdf", "--bom", str(materials))
    assert json.loads(materials.read_text())["metadata"]["component"]["name"] == "fedmq"
    assert path.read_bytes().startswith(b"%PDF-")
    assert path.stat().st_mode & 0o777 == 0o600
    _, found = await written(federation, "dossier.json")
    dossier = Dossier.model_validate_json(found.read_text())
    titles: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FPDF, "start_section", lambda _, title: titles.append(title))
        pdf_of_dossier(dossier)
    assert titles == [section.title for section in dossier.sections]


@pytest.mark.parametrize(
    ("party", "name", "line"),
    [
        ("bank", "dossier.txt", "dossier.txt: name a file that ends in .html, .pdf or .json"),
        (
            "telco",
            "dossier.html",
            "only bank has the trees and their evaluation; see: fedmq",
        ),
    ],
)
async def test_what_cannot_be_written_is_one_line(
    federation: DaemonsInMemory, party: str, name: str, line: str
) -> None:
    path = federation.folder / party / name
    file = federation.folder / party / "party.toml"
    done = await asyncio.to_thread(fedmq, "models", "dossier", file, "credit", "--output", path)
    assert done.code == 3 and line in done.error
    assert not path.exists()

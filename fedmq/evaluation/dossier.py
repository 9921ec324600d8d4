"""The file that a validator asks for, as data: sections of facts and tables, and what is missing.

Sections follow Annex IV of Regulation (EU) 2024/1689, the AI Act, and the parts of SR 26-2, the
supervisory guidance on model risk management of the Federal Reserve, the FDIC and the OCC (2026);
each says which of both it answers. What only people can say is named in the last one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedmq.boosting.model.cross_validated import CrossValidated
from fedmq.boosting.model.share import refreshed_in_words
from fedmq.evaluation.card import selection_in_words
from fedmq.evaluation.dossier_page import Dossier, Section
from fedmq.evaluation.evaluate import learning_curves
from fedmq.evaluation.report import HELD_OUT, ROWS_FROM, Cell, Report, ReportTable
from fedmq.party.card.model_card import ModelCard, Worth
from fedmq.party.card.signed_card import CardFile, Signature
from fedmq.party.online.drift import KeptDrift

__all__ = ["Sources", "dossier_of"]


@dataclass(frozen=True, slots=True)
class Sources:
    """What is known of a model at the active party ``party``."""

    party: str
    purpose: str
    """What its scores decide, and about whom."""
    label: tuple[str, ...]
    """The columns that are learned."""
    file: CardFile
    signatures: Sequence[Signature]
    report: Report | None
    columns: Sequence[Mapping[str, Any]] | None
    """The own table's, as ``fedmq data describe`` has them; None if it cannot be read now."""
    importance: Sequence[tuple[str, str, float]]
    """Party, column and gain."""
    packages: Sequence[tuple[str, str, str]]
    """Name, version and licence of all that runs here."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The training's parameters, with those that name columns, which the card leaves out."""
    signs: Mapping[str, int] = field(default_factory=dict)
    """Own columns that ``[data]`` keeps monotone today."""
    bins: Mapping[str, tuple[float, ...] | int] = field(default_factory=dict)
    """How ``[data]`` cuts own columns today: at these cuts, or into so many bins at most."""
    offered: Sequence[str] = ()
    """The own columns of the training."""
    ignored: Sequence[str] = ()
    """Own columns that ``[data]`` leaves out today."""
    named: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By party the columns whose names are known here."""
    screens: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """Looks at columns of the training's people before it: when each was made, what was found."""
    history: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Each metric of each set of rows, by round of the training."""
    cross_validated: CrossValidated | None = None
    """The cross-validation of the name, of the training's parties."""
    worth: Mapping[str, Worth] = field(default_factory=dict)
    """The last metric without each party of which there is a fallback model."""
    newest: str = ""
    """The column by which the newest rows were held out; empty if they were chosen otherwise."""
    drift: KeptDrift | None = None
    """How the people who are scored differ from those of the training; None if nobody counts."""
    drifting: Sequence[str] | None = None
    """The other parties that say that their columns drift; None if the daemon cannot be asked."""
    audits: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """Audits of this training, as ``fedmq audit --json`` prints them, by their files."""
    recording: str = ""
    """A recording of this training that the party has."""
    served: Sequence[str] = ()
    """Names under which the model answers."""
    session: str = ""
    """The training's session; empty if it has no record here."""
    signed: Mapping[str, int] = field(default_factory=dict)
    """By party the trees under whose answers this party has its signature."""
    verdicts: Mapping[str, str] = field(default_factory=dict)
    """By party what a replay of the transcript says that it has shown."""
    no_proofs: str = ""
    """Why nothing is signed."""
    second_person: bool = False
    """Whether another person has to say yes to an activation today."""
    consents: Sequence[Mapping[str, Any]] = ()
    """Entries of the own audit log about the model."""
    players: Sequence[str] = ()
    reasons: Sequence[Sequence[float]] = ()
    """What each of the ``players`` added to the margins of some people, a row for each."""
    no_reasons: str = ""
    """Why there are none."""
    outdated: Collection[str] = ()
    """"report" or "card", where the one on file is of an earlier model of the name: left out."""
    made: str = ""
    simulated: bool = False
    """All parties were simulated in one process: nobody signed, and nothing is served."""

    @property
    def card(self) -> ModelCard:
        """The model's card."""
        return self.file.card

    def missing(self, what: str, of: str) -> str:
        """The line that ``what`` is missing, and what makes it: advice ``of`` this kind."""
        return f"{what}: {(_IN_PYTHON if self.simulated else _BY_COMMAND)[of]}"


def dossier_of(sources: Sources) -> Dossier:
    """The dossier, with what ``sources`` have."""
    parts = [
        _purpose,
        _data,
        _design,
        _performance,
        _groups,
        _explained,
        _disclosed,
        *([] if sources.simulated else [_monitoring, _sign_offs, _proofs, _activations]),
        _software,
        _for_the_provider,
    ]
    sections = tuple(part(sources) for part in parts)
    return Dossier(
        model=sources.card.model, party=sources.party, made=sources.made, sections=sections
    )


_DEVELOPMENT = "SR 26-2 IV, Model Development and Model Use"
_VALIDATION = "SR 26-2 V, Model Validation and Monitoring"
_GOVERNANCE = "SR 26-2 VI, Governance and Controls"
_VENDORS = "SR 26-2 VII, Vendor and Other Third-Party Products"
"""Its parts under their own headings."""

_BY_COMMAND: Mapping[str, str] = {
    "purpose": "give --purpose TEXT",
    "table": "see: fedmq data check",
    "evaluation": "fedmq evaluate PARTY MODEL --output report",
    "cross-validation": "fedmq cv JOB",
    "worth": "fallback = true in the job, or fedmq models card PARTY MODEL --worth",
    "groups": "fedmq evaluate PARTY MODEL --group COLUMN --output report, before a new dossier",
    "time": "a job whose split is { newest = COLUMN } holds out the newest rows; scores online "
    "tell drift",
    "attacks": 'write recordings = "FOLDER" into a party\'s file before it; the output of fedmq '
    "audit RECORDING --json is for --audit",
}
_IN_PYTHON: Mapping[str, str] = {
    "purpose": 'give purpose="..."',
    "table": "they are the caller's",
    "evaluation": "model.evaluate(...), whose report is for dossier(report=...)",
    "cross-validation": "fedmq.cv of the same parameters",
    "worth": "a simulation without it, on the same rows",
    "groups": "of a federation, fedmq evaluate has it",
    "time": "model.evaluate(...) of later rows",
    "attacks": "fedmq.simulate(record=FOLDER), then fedmq.audit, whose report is for "
    "dossier(audits=...)",
}
"""What makes that which is missing, for a model of daemons and for a simulated one."""


def _table(name: str, headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> ReportTable:
    return ReportTable(name=name, headers=tuple(headers), rows=tuple(tuple(row) for row in rows))


def _purpose(sources: Sources) -> Section:
    card = sources.card
    return Section(
        title="What the model is for",
        answers=f"Annex IV 1 (a); {_DEVELOPMENT}",
        facts={
            "model": card.model,
            "learns": ", ".join(sources.label),
            "objective": card.objective,
            "federation": card.federation,
            "parties": f"{card.parties[0]} (holds the label), {', '.join(card.parties[1:])}",
            **({"purpose": sources.purpose} if sources.purpose else {}),
            **({"made": "in one process, which had all tables"} if sources.simulated else {}),
        },
        missing=()
        if sources.purpose
        else (sources.missing("what the scores decide, and about whom", "purpose"),),
    )


def _data(sources: Sources) -> Section:
    card, missing = sources.card, []
    facts = {}
    if card.training is None:
        missing.append("the training's rows: the model has no record of its training here")
    else:
        facts = {
            "rows learned from": f"{card.training.rows:,}",
            "rows held out": f"{card.training.held_out:,}",
            "alignment": card.training.alignment or "none: all parties hold the same ids",
        }
    tables = []
    if sources.columns is None:
        missing.append(sources.missing("the own columns: the table cannot be read now", "table"))
    else:
        tables.append(
            _table(
                f"Columns of {sources.party}, as they are today",
                ("column", "role", "type", "missing", "distinct"),
                [
                    (
                        column["name"],
                        column["role"],
                        column["type"],
                        None if column["missing"] is None else f"{column['missing']:.2%}",
                        column["categories"],
                    )
                    for column in sources.columns
                ],
            )
        )
    for other in card.parties[1:]:
        shown = _as_screened(other, sources)
        tables += shown
        if not shown and other not in sources.named:
            missing.append(
                f"columns of {other}, which are its own to describe: fedmq screen JOB before a "
                "training, or fedmq models importance PARTY MODEL --names"
            )
    return Section(
        title="What it learned from",
        answers=f"Annex IV 2 (d) in part; {_DEVELOPMENT}",
        facts=facts,
        tables=tuple(tables),
        missing=tuple(missing),
    )


def _as_screened(party: str, sources: Sources) -> list[ReportTable]:
    """What ``party`` showed of its columns in the last screen before the training."""
    for made, found in reversed(sources.screens):
        told = found["parties"].get(party, {})
        if "columns" in told:
            figure = "p" if any("p" in of and "iv" not in of for of in told["columns"]) else "iv"
            rows = [
                (
                    of["name"] or f"column {of['column']}",
                    of["type"],
                    f"{of['missing']:.2%}",
                    of["distinct"],
                    of.get(figure),
                )
                for of in told["columns"]
            ]
            headers = ("column", "type", "missing", "distinct", "p" if figure == "p" else "IV")
            name = f"Columns of {party}, as screen {found['screen']} of {made} saw them"
            return [_table(name, headers, rows)]
    return []


def _design(sources: Sources) -> Section:
    card = sources.card
    params = {**card.params, **sources.params}
    chosen = [(name, _in_words(name, of)) for name, of in params.items() if of not in ([], {})]
    return Section(
        title="How it was made",
        answers=f"Annex IV 2 (a), (b) in part; {_DEVELOPMENT}",
        facts={
            "method": "gradient boosted trees over several parties (SecureBoost)",
            "trees": f"{card.trees:,}",
            **({"refreshes": refreshed_in_words(card.refreshes)} if card.refreshes else {}),
            "as XGBoost": "; ".join(card.departures) or "yes, node by node",
            **dict(_selection(sources)),
        },
        tables=(_table("Parameters", ("parameter", "value"), chosen), *_screens(sources)),
    )


def _in_words(parameter: str, value: Any) -> str:
    if parameter == "monotone_constraints":
        return ", ".join(_signs(value))
    if parameter == "interaction_constraints":
        return "; ".join(f"together: {', '.join(map(str, columns))}" for columns in value)
    return str(value)


def _signs(signs: Mapping[str, int]) -> Iterator[str]:
    return (f"{name} {'rises' if sign > 0 else 'falls'}" for name, sign in signs.items() if sign)


def _cuts(bins: Mapping[str, tuple[float, ...] | int]) -> Iterator[str]:
    for name, given in bins.items():
        if isinstance(given, tuple):
            yield f"{name} at {', '.join(f'{cut:.7g}' for cut in given)}"
        else:
            yield f"{name} into {given} bins at most"


def _selection(sources: Sources) -> Iterator[tuple[str, str]]:
    """Which columns the training was offered, as far as this party knows it."""
    party, training = sources.party, sources.card.training
    if training is not None and training.selection is not None:
        yield from selection_in_words(training.selection)
    if sources.offered:
        yield f"columns of {party}", f"{len(sources.offered):,}: {', '.join(sources.offered)}"
    if sources.ignored:
        yield f"left out by {party}, as of today", ", ".join(sources.ignored)
    if sources.signs:
        yield f"monotone by [data] of {party}, as of today", ", ".join(_signs(sources.signs))
    if sources.bins:
        yield f"cut by [data] of {party}, as of today", "; ".join(_cuts(sources.bins))
    for other in () if sources.simulated else sources.card.parties[1:]:
        known = sources.named.get(other)
        yield (
            f"columns of {other}",
            f"those that its owner's [policy] features and [data] let in; {party} is told "
            + ("nothing of them" if known is None else f"that it split by {', '.join(known)}"),
        )
    if sources.simulated:
        for other, columns in sources.named.items():
            yield f"columns of {other}", f"{len(columns):,}: {', '.join(columns)}"
    elif not sources.screens:
        yield "screens", f"{party} keeps none on these people from before the training"


def _screens(sources: Sources) -> Iterator[ReportTable]:
    if not sources.screens:
        return
    rows: list[list[Cell]] = []
    for made, found in sources.screens:
        chosen = found["selected"]
        for party, told in found["parties"].items():
            columns = {of["column"]: of["name"] for of in told.get("columns", ())}
            told_all = chosen is not None and "refused" not in told
            selected = len(chosen.get(party, ())) if told_all else None
            into = None
            if chosen is not None and party == sources.party:
                names = {columns[number] for number in chosen.get(party, ())}
                into = len(names & set(sources.offered))
            refused = "refused" if "refused" in told else None
            rows.append(
                [found["screen"], made, party, refused or len(columns), selected, into],
            )
    yield ReportTable(
        name="Screens before the training",
        headers=("screen", "made", "party", "columns seen", "selected", "of these offered"),
        rows=tuple(map(tuple, rows)),
        about="Each owner decides which of its columns are offered; what another owner took from a "
        "screen is not known here.",
    )


def _performance(sources: Sources) -> Section:
    card, tables, missing = sources.card, [], []
    if card.metrics:
        rows = [*card.metrics.items()]
        tables.append(_table("After the last tree of the training", ("metric", "value"), rows))
    report = sources.report
    if report is None:
        again = _earlier(sources, "report")
        missing.append(sources.missing(f"an evaluation{again}", "evaluation"))
    else:
        if report.facts.get(ROWS_FROM, HELD_OUT) != HELD_OUT:
            what = "an evaluation on rows that the training held out, for this one is on other rows"
            missing.append(sources.missing(what, "evaluation"))
        rows_of = [
            (name, found.value, found.low, found.high) for name, found in report.metrics.items()
        ]
        tables.append(_table(_whose(report), ("metric", "value", "95 % from", "to"), rows_of))
        tables += [table for table in report.tables if "roup" not in table.name]
    charts = tuple(learning_curves(sources.history)) if report is None else report.charts
    if sources.cross_validated is None:
        missing.append(sources.missing("a cross-validation of the same job", "cross-validation"))
    else:
        tables.append(_cross_validation(sources, sources.cross_validated))
    worth = {**card.worth, **sources.worth}
    if worth:
        tables.append(_worth(worth))
    else:
        missing.append(sources.missing("what each partner is worth", "worth"))
    return Section(
        title="How good it is",
        answers=f"Annex IV 2 (g), 3 in part; {_VALIDATION}",
        facts={} if report is None else dict(report.facts),
        charts=charts,
        tables=tuple(tables),
        missing=tuple(missing),
    )


def _cross_validation(sources: Sources, found: CrossValidated) -> ReportTable:
    """The last round of a cross-validation, and which parameters differ from the model's."""
    rows = [
        (name.removesuffix("-mean"), means[-1], found.figures.get(f"{name[:-4]}std", (None,))[-1])
        for name, means in found.figures.items()
        if name.endswith("-mean") and means
    ]
    theirs = found.params.model_dump(mode="json", exclude_none=True)
    own = sources.params or sources.card.params
    other = sorted(name for name in {*own, *theirs} if own.get(name) != theirs.get(name))
    said = ", ".join(f"{name} = {theirs.get(name)}" for name in other)
    return ReportTable(
        name=f"Cross-validation with {found.folds} folds, after round {_last_round(found)}",
        headers=("metric", "mean", "standard deviation"),
        rows=tuple(rows),
        about=f"Its parameters are the model's but for {said}."
        if other
        else "Its parameters are the model's.",
    )


def _last_round(found: CrossValidated) -> int:
    return found.rounds if found.best_iteration is None else found.best_iteration + 1


def _worth(worth: Mapping[str, Worth]) -> ReportTable:
    return _table(
        "Trained again without a party, on the same rows",
        ("without", "metric", "with", "without it", "difference"),
        [(party, of.metric, of.value, of.without, of.difference) for party, of in worth.items()],
    )


def _earlier(sources: Sources, what: str) -> str:
    return ", for that on file is of an earlier model of this name" * (what in sources.outdated)


def _whose(report: Report) -> str:
    """Which rows the figures of a report are of."""
    place = report.facts.get(ROWS_FROM)
    if place == HELD_OUT:
        return "On held-out rows"
    if place is None:  # an earlier version's report, which says no more than the name of the set
        return f"On {report.facts.get('rows evaluated', 'rows of unknown origin')}"
    return f"On rows of {place}"


def _groups(sources: Sources) -> Section:
    report, facts, missing = sources.report, {}, []
    tables = [] if report is None else [of for of in report.tables if "roup" in of.name]
    if not tables:
        missing.append(sources.missing("by group", "groups"))
    if sources.newest:
        facts["held out"] = (
            f"the newest rows by {sources.newest}: figures on them are of later ones"
        )
    drift = sources.drift
    if drift is not None and drift.found:
        tables.append(_drift(drift))
    elif drift is not None and drift.rows:
        facts["people scored online"] = f"{drift.rows:,}; drift is said of {drift.least_rows:,} on"
    if sources.drifting is not None:
        said = ", ".join(sources.drifting) or "none says so"
        facts["other parties whose columns drift"] = said
    if not sources.newest and (drift is None or not drift.found):
        missing.append(sources.missing("over time", "time"))
    return Section(
        title="Whether it is as good for everybody, and stays so",
        answers=f"Annex IV 2 (g), 3 in part; {_VALIDATION}",
        facts=facts,
        tables=tuple(tables),
        missing=tuple(missing),
    )


def _drift(drift: KeptDrift) -> ReportTable:
    rows = [(of.column, of.index, of.rows, "alarm" if of.alarm else "") for of in drift.found]
    return ReportTable(
        name="Drift of people scored online since the training",
        headers=("column", "population stability index", "people", ""),
        rows=tuple(sorted(rows, key=lambda row: -row[1])),
        about=f"An index above {drift.threshold:g} is an alarm.",
    )


def _explained(sources: Sources) -> Section:
    tables = [_table("Gain of all splits", ("party", "column", "gain"), sources.importance)]
    if sources.reasons:
        tables.append(
            _table(
                "What was added to the margin of held-out people, one a row",
                sources.players,
                [[round(value, 5) for value in row] for row in sources.reasons],
            )
        )
    return Section(
        title="What it looks at",
        answers=f"Annex IV 3 in part: the interpretation of outputs; {_VALIDATION}",
        tables=tuple(tables),
        missing=(f"reasons of some scores: {sources.no_reasons}",) if sources.no_reasons else (),
    )


def _disclosed(sources: Sources) -> Section:
    card = sources.card
    held = [words for party, of in card.withheld.items() for words in of.in_words(party)]
    facts = {"withheld": "; ".join(held) or "nothing"}
    if card.training is not None:
        engine = card.training.engine
        facts |= {
            "engine": engine.name,
            f"{card.parties[0]} learned beyond the model": engine.active_learns,
            "the others learned beyond the model": engine.passive_learns,
        }
        if engine.known_leak:
            facts["known leak"] = engine.known_leak
    return Section(
        title="What the training showed to whom",
        answers=f"Annex IV 2 (h) in part; {_GOVERNANCE}; {_VENDORS}",
        facts=facts,
        tables=tuple(_audit(file, found) for file, found in sources.audits),
        missing=() if sources.audits else (_audit_it(sources),),
    )


def _audit(file: str, found: Mapping[str, Any]) -> ReportTable:
    return ReportTable(
        name=f"Attacks on what {found['party']} saw of this training",
        headers=("attack", "target", "where", "measure", "value", "by guessing", ""),
        rows=tuple(
            (
                *(of[name] for name in ("attack", "target", "where", "measure")),
                of["value"],
                of["chance"],
                "succeeds" if of["succeeds"] else "fails",
            )
            for of in found["findings"]
        ),
        about=f"Scored by the truth, which no single party holds{f': {file}' * bool(file)}.",
    )


def _audit_it(sources: Sources) -> str:
    """What makes the figures of attacks: they take minutes, and the truth of other parties."""
    what = "figures of attacks on this very training, on trial data"
    if sources.recording:
        return (
            f"{what}: fedmq audit {sources.recording} --features PARTNER=FILE --json; its output "
            "is for --audit"
        )
    return sources.missing(what, "attacks")


def _monitoring(sources: Sources) -> Section:
    drift, facts = sources.card.drift, {}
    if drift is not None:
        facts["drift"] = (
            f"an alarm above a population stability index of {drift.threshold:g}, over the "
            f"{drift.rows:,} people scored last, from {drift.least_rows:,} on"
        )
    return Section(
        title="How it is watched",
        answers=f"Annex IV 3, 9 in part; {_VALIDATION}",
        facts=facts,
        missing=() if facts else ("an alarm on drift: [online] drift in the party's file",),
    )


def _software(sources: Sources) -> Section:
    return Section(
        title="What it runs on",
        answers=f"Annex IV 1 (c), 2 (c) in part; {_VENDORS}",
        tables=(_table("Bill of materials", ("package", "version", "licence"), sources.packages),),
    )


def _sign_offs(sources: Sources) -> Section:
    signed = [(of.party, of.state, of.fingerprint or "") for of in sources.signatures]
    rows = [[*_entry(entry)] for entry in sources.consents]
    missing = []
    if not any(of.state == "signed" for of in sources.signatures):
        again = _earlier(sources, "card")
        missing.append(f"signatures of a card{again}: fedmq models card PARTY MODEL --ask")
    return Section(
        title="Who has agreed",
        answers=f"Annex IV 2 (g) in part: test reports, signed; {_GOVERNANCE}",
        tables=(
            _table("Signatures of the model card", ("party", "signature", "key"), signed),
            *([_table("Own audit log", ("at", "event", "what", "by"), rows)] if rows else []),
        ),
        missing=tuple(missing),
    )


def _proofs(sources: Sources) -> Section:
    card, facts, rows, missing = sources.card, {}, [], []
    if sources.no_proofs:
        facts["signed answers"] = f"none: {sources.no_proofs}"
    for party in card.parties[1:]:
        signed = sources.signed.get(party, 0)
        verdict = sources.verdicts.get(party)
        rows.append((party, f"{signed:,} trees", verdict or "its transcript was not shown"))
        if verdict is None and sources.session:
            missing.append(
                f"a verdict on the answers of {party}: its owner shows an auditor what fedmq "
                f"transcript export PARTY {sources.session} writes, a file for --transcript"
            )
    return Section(
        title="Whether the other parties' answers were honest",
        answers=f"Annex IV 2 (h) in part; {_VENDORS}",
        facts=facts,
        tables=(_table("Answers in the training", ("party", "signed", "verdict"), rows),),
        missing=tuple(missing),
    )


def _activations(sources: Sources) -> Section:
    """Who asked for it to be served, and who else said yes."""
    rows = [_activation(entry) for entry in sources.consents if _switches(entry, sources)]
    two = "another person than who asks" if sources.second_person else "nobody beside who asks"
    return Section(
        title="Who put it to use",
        answers=f"Annex IV 3 in part: control; {_GOVERNANCE}",
        facts={
            "answers as": ", ".join(sources.served) or "it is not activated",
            f"says yes at {sources.party}, as of today": two,
        },
        tables=()
        if not rows
        else (_table("Activations", ("at", "event", "asked by", "answered by", "end"), rows),),
        missing=()
        if sources.second_person
        else ('a second person\'s yes to each activation: activate = "two" in [policy]',),
    )


def _switches(entry: Mapping[str, Any], sources: Sources) -> bool:
    by_command = entry.get("what") in ("activate", "rollback")
    return entry.get("activation") == sources.card.model or by_command


def _activation(entry: Mapping[str, Any]) -> Sequence[Cell]:
    if "activation" in entry:
        asked, answered = entry.get("asked_by", entry.get("peer")), entry.get("by")
        return entry["at"], entry["event"], asked, answered, entry.get("reason")
    event = f"{entry['event']}: {entry['what']}"
    return entry["at"], event, entry.get("by"), None, entry.get("outcome")


_OF_THE_PROVIDER = (
    "1 (a): who the provider is, and what differs from the versions before",
    "1 (b), (d) to (h): with what the system works together, the forms in which it is put into "
    "service, its hardware, the interface of those who use it and their instructions",
    "2 (b): why these columns, people, parameters and this aim, and what was given up for them",
    "2 (c): which software is built on which, and the machines that trained and tested it",
    "2 (d): where the data come from, how they were obtained, labelled and cleaned",
    "2 (e), 3: the measures of human oversight, such as who may overrule a score, and what they do",
    "2 (f): changes that were planned from the beginning",
    "2 (h): the measures of cybersecurity around the parties' machines",
    "3: what may go wrong for health, safety and fundamental rights, and for whom",
    "4: why these metrics are the right ones for this purpose",
    "5: the risk management system, after Article 9",
    "6: the changes of the system in its life",
    "7: the harmonised standards that were applied, or the solutions in their place",
    "8: a copy of the EU declaration of conformity, after Article 47",
    "9: the plan of how it is watched once in use, after Article 72",
)
"""Points of Annex IV that no file of a party answers, or not in full."""


def _for_the_provider(_: Sources) -> Section:
    return Section(
        title="What the provider must add",
        answers=f"Annex IV 1 to 9, as each line says; {_GOVERNANCE}",
        missing=tuple(f"Annex IV {point}" for point in _OF_THE_PROVIDER),
    )


def _entry(entry: Mapping[str, Any]) -> Iterator[str]:
    for names in (("at",), ("event",), ("what", "session", "did"), ("by", "who", "peer")):
        yield next((str(entry[name]) for name in names if name in entry), "")

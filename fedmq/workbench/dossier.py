"""What goes into a dossier: a model's files at its active party, and reasons by its daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmq.boosting.model.cross_validated import CrossValidated
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.shown_model import owned_importance
from fedmq.errors import DataError, FedmqError
from fedmq.evaluation.bill_of_materials import packages_here
from fedmq.evaluation.card import card_of
from fedmq.evaluation.dossier import Sources, dossier_of
from fedmq.evaluation.dossier_page import Dossier
from fedmq.party.card.signed_card import CardFile
from fedmq.party.configuration.job import ByNewest, cross_validation_name
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.data.descriptions import describe_table
from fedmq.party.online.drift import kept_drift
from fedmq.party.store.documents import (
    Deployments,
    TrainingRecord,
    cards,
    cross_validations,
    held_out_rows,
    made_screens,
    read_column_names,
    training_records,
)
from fedmq.workbench.evaluation import kept_reports
from fedmq.workbench.own_shares import OwnShares

if TYPE_CHECKING:
    from fedmq.workbench.proofs import Proofs

__all__ = ["DossierWanted", "model_dossier"]

_MOST_ENTRIES = 200


@dataclass(frozen=True, slots=True)
class DossierWanted:
    """What a dossier has beside the model's files, as the options of ``fedmq models dossier``.

    ``purpose``: what the scores decide. So many held-out people have reasons as there are
    ``samples``. ``audits``: what ``fedmq audit --json`` printed of the training; ``transcripts``:
    what its passive parties have exported of it.
    """

    purpose: str = ""
    samples: int = 0
    audits: Sequence[Path] = ()
    transcripts: Sequence[Path] = ()


def model_dossier(
    shares: OwnShares,
    share: ActiveShare,
    wanted: DossierWanted,
    ask: Callable[[Mapping[str, Any]], Any],
) -> Dossier:
    """The dossier of the model of ``share``; ``ask`` sends a request to the party's daemon.

    Raises:
        DataError: an audit or transcript is of another training; a file of the state folder, or
            the audit log, is damaged or of a later version.
    """
    state, name = shares.state, share.model_id
    record = training_records(state).find(name)
    report, file, outdated = kept_reports(state).find(name), _kept_card(state, name), set()
    if report is not None and record is not None and report.made < record.ended:
        report = None
        outdated.add("report")
    if file is not None and not _is_of(file, record):
        file = None
        outdated.add("card")
    if file is None:
        drift = shares.config.online.drift
        file = CardFile(card=card_of(share, shares.federation.name, record, report, {}, drift))
    players, reasons, none = _reasons(shares, name, wanted.samples, ask)
    names, columns = read_column_names(state, name), _columns(shares)
    gains = owned_importance(share, "total_gain", names)
    session = "" if record is None else record.session
    proofs = _proofs(shares, session, wanted.transcripts)
    return dossier_of(
        Sources(
            party=shares.party,
            purpose=wanted.purpose,
            label=tuple(shares.config.data.labels),
            file=file,
            signatures=file.signatures(shares.federation),
            report=report,
            outdated=outdated,
            columns=columns,
            importance=[(*of, gain) for of, gain in sorted(gains.items(), key=lambda it: -it[1])],
            packages=packages_here(),
            history=share.history,
            cross_validated=_cross_validated(state, share),
            worth=shares.worths(share),
            newest=_newest(record),
            drift=kept_drift(state, shares.config.online.drift, name),
            drifting=_drifting(ask),
            audits=[(path.name, _audit(path, name, record)) for path in wanted.audits],
            recording=_recording(shares, record),
            served=Deployments.read(state).now_of(name),
            session=session,
            signed=proofs.signed,
            verdicts=proofs.verdicts,
            no_proofs=proofs.none,
            second_person=shares.config.policy.activate == "two",
            params=share.params.model_dump(mode="json", exclude_none=True),
            signs=shares.config.data.monotone,
            bins=shares.config.data.bins,
            offered=_offered(share, columns),
            ignored=shares.config.data.ignore,
            named={party: [text for text in told.texts if text] for party, told in names.items()},
            screens=_screens_before(state, record),
            consents=_entries(state, name, session),
            players=players,
            reasons=reasons,
            no_reasons=none,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
        )
    )


def _screens_before(
    state: Path, record: TrainingRecord | None
) -> list[tuple[str, Mapping[str, Any]]]:
    """The kept screens on the people of the training that ended before it began."""
    if record is None:
        return []
    kept = made_screens(state)
    found = [kept.read(name) for name in kept.names()]
    return [
        (screen.made, screen.found)
        for screen in found
        if screen.made <= record.began and screen.found["alignment"] == record.job.alignment
    ]


def _kept_card(state: Path, model: str) -> CardFile | None:
    """The card that the party has of a model of this name; DataError if it is damaged."""
    kept = cards(state)
    return None if kept.find(model) is None else CardFile.read(kept.path(model))


def _is_of(file: CardFile, record: TrainingRecord | None) -> bool:
    """Whether the card is of the training on ``record``, as far as both say which it is."""
    training = file.card.training
    return record is None or training is None or training.session == record.session


def _offered(share: ActiveShare, described: Sequence[Mapping[str, Any]] | None) -> Sequence[str]:
    """The own columns that the training had: one of categories once, where it can be described."""
    known = {of["name"] for of in described or ()}
    names = (
        name if name in known else next((of for of in known if name.startswith(f"{of}=")), name)
        for name in share.lookup_table.columns
    )
    return tuple(dict.fromkeys(names))


def _cross_validated(state: Path, share: ActiveShare) -> CrossValidated | None:
    """The cross-validation of the model's name and parties."""
    found = cross_validations(state).find(cross_validation_name(share.model_id))
    return found if found is not None and found.parties == share.parties else None


def _newest(record: TrainingRecord | None) -> str:
    split = None if record is None or not record.held_out else record.job.split
    return split.newest if isinstance(split, ByNewest) else ""


def _drifting(ask: Callable[[Mapping[str, Any]], Any]) -> Sequence[str] | None:
    """The other parties that report drift; None if no daemon answers."""
    try:
        found: Sequence[str] = ask({"do": "status"})["drift"]["parties"]
    except FedmqError:
        return None
    return found


def _audit(path: Path, model: str, record: TrainingRecord | None) -> Mapping[str, Any]:
    """The audit in the file ``path``; DataError unless it is one of the model's training."""
    from fedmq.leakage.audit import AuditReport  # no other command of models needs the attacks

    found = AuditReport.read(path)
    if record is None or found.session != record.session:
        of = f"session {found.session}" if found.session else "a session that it does not name"
        raise DataError(f"{path}: an audit of {of}, not of the training of {model}")
    return found.as_dict()


def _proofs(shares: OwnShares, session: str, shown: Sequence[Path]) -> Proofs:
    from fedmq.workbench.proofs import Proofs, proofs_of  # nor the replay of transcripts

    if session:
        return proofs_of(shares, session, shown)
    if shown:
        raise DataError(f"{shown[0]}: the model has no record of its training here")
    return Proofs(none="the model has no record of its training here")


def _recording(shares: OwnShares, record: TrainingRecord | None) -> str:
    folder = shares.config.recordings
    if folder is None or record is None:
        return ""
    found = sorted(folder.glob(f"{record.session}.*.{shares.party}.recording"))
    return str(found[-1]) if found else ""


def _columns(shares: OwnShares) -> Sequence[Mapping[str, Any]] | None:
    try:
        found = describe_table.bind(shares.party, shares.config.data, 2).run()
    except FedmqError:
        return None
    columns: Sequence[Mapping[str, Any]] = found["columns"]
    return columns


def _reasons(
    shares: OwnShares, model: str, samples: int, ask: Callable[[Mapping[str, Any]], Any]
) -> tuple[Sequence[str], Sequence[Sequence[float]], str]:
    """The players, their parts in the margins of some held-out people, or why there are none."""
    if not samples:
        return (), (), "none were asked for; give --samples 5"
    held_out = held_out_rows(shares.state)
    if not held_out.path(model).exists():
        return (), (), "no rows were held out; give the job an evaluation"
    ids = list(held_out.read(model).ids[:samples])
    request = {"do": "predict", "model": model, "ids": ids, "strict": False, "explain": True}
    try:
        found = ask(request)
    except FedmqError as error:
        return (), (), str(error)
    parts = [row[0] for row in found["contributions"] if row is not None and len(row) == 1]
    return (found["players"], parts, "") if parts else ((), (), "scores are several numbers a row")


def _entries(state: Path, model: str, session: str) -> list[dict[str, Any]]:
    """What the own audit log says of the model and of its training's session."""
    about = {model, *([session] if session else [])}
    found = [entry for entry in AuditLog(state).entries() if about & set(_texts(entry))]
    return found[-_MOST_ENTRIES:]


def _texts(entry: Mapping[str, Any]) -> Iterator[str]:
    return (value for value in entry.values() if isinstance(value, str))

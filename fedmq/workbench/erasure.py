"""Where is a person in a party's files, and what of that can be taken out?

Everything here is of this party alone: no other party is asked, and none is told.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from fedmq.errors import ConfigError, DaemonError, DataError
from fedmq.party.configuration.party import PartyFile
from fedmq.party.consent.audit_log import QuestionLog
from fedmq.party.data.id_column import comparable
from fedmq.party.data.repeated_ids import people_of
from fedmq.party.online.answering import ASKED_FILE, hashed_person
from fedmq.party.store.alignments import AlignmentStore
from fedmq.party.store.documents import (
    TEXT,
    Documents,
    cross_validations,
    held_out_rows,
    training_records,
)
from fedmq.party.store.kept_blindings import blinded_list_holds, key_file
from fedmq.protocol.session_records import hashed_ids
from fedmq.workbench.under_way import alignment_holds, session_with, table_holds

__all__ = ["Place", "as_removed", "person_of", "places_of"]

_FOLDS = ".folds.csv"
_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a person is: ``count`` rows, entries or files of ``what``.

    ``done``: whether they are gone, can be taken out, or stay; ``why`` says more.
    """

    what: str
    count: int
    done: Literal["removed", "removable", "stays"]
    why: str = ""


def person_of(config: PartyFile, name: str) -> str:
    """The person of the id ``name``, as the party's files have it; DataError if it is empty."""
    person = comparable([name], config.data)[0]
    if not person:
        raise DataError("id: it is empty")
    return person


def places_of(config: PartyFile, name: str, remove: bool) -> list[Place]:
    """Where the person of the id ``name`` is at the party of ``config``; with ``remove`` taken out.

    Raises:
        DataError: the id is empty, or a file is damaged.
        DaemonError: a session that is under way holds the person; nothing is taken out. Or one
            began meanwhile, or wrote about the person: then what is listed above is out.
        ConfigError: the disk refuses; what was taken out before stays out.
    """
    person = person_of(config, name)
    if remove and (busy := session_with(config, person)) is not None:
        raise DaemonError(
            f"{config.party}: session {busy.session}, {busy.purpose} of {busy.name}, is under way "
            "and holds this person, or may: let it end, or end it with fedmq cancel PARTY "
            f"{busy.session}; then ask again. Nothing was removed"
        )
    found = _found(config, person, remove)
    if remove:
        _check_nothing_came_back(config, person)
    return found


def _check_nothing_came_back(config: PartyFile, person: str) -> None:
    """Raise DaemonError if a session began while the person was taken out, or wrote about it."""
    if (busy := session_with(config, person)) is not None:
        raise DaemonError(
            f"{config.party}: session {busy.session}, {busy.purpose} of {busy.name}, began while "
            "this person was taken out, and holds it, or may: what is kept now is without the "
            "person, but the session may write it again. Let it end, or end it with fedmq cancel "
            f"PARTY {busy.session}; then ask again"
        )
    again = [of.what for of in _found(config, person, False) if of.done == "removable"]
    if again:
        raise DaemonError(
            f"{config.party}: while this person was taken out, a session wrote {', '.join(again)} "
            "with it: ask again"
        )


def _found(config: PartyFile, person: str, remove: bool) -> list[Place]:
    return [
        *_tables(config, person),
        *_alignments(config, person, remove),
        *_blinded(config, person, remove),
        *_held_out(config, person, remove),
        *_folds(config, person, remove),
        *_recordings(config, person, remove),
        *_transcripts(config, person),
        *_questions(config, person),
        *_asked(config, person, remove),
        *_answered(config, person),
    ]


def as_removed(places: Iterable[Place]) -> list[Place]:
    """``places`` after what is removable in them was taken out."""
    return [
        replace(place, done="removed") if place.done == "removable" else place for place in places
    ]


def _tables(config: PartyFile, person: str) -> Iterator[Place]:
    held = config.data.label is not None
    named = {"own": (config.data, held), "serving": (config.serving, False)}
    for name, (section, labelled) in named.items():
        if section is None:
            continue
        if table_holds(config.party, section, labelled, person):
            why = f"take it out of {section.place}"
            yield Place(f"the party's {name} table", 1, "stays", why)


def _alignments(config: PartyFile, person: str, remove: bool) -> Iterator[Place]:
    store = AlignmentStore(config.state)
    records = training_records(config.state)
    for model in records.names():
        record = records.find(model)
        if record is not None and record.job.alignment not in store.names():
            why = "the list of whom it learned from is not kept: it may have been this person"
            yield Place(f"model {model}", 1, "stays", why)
    for name in store.names():
        if not alignment_holds(config, name, person):
            continue
        for model in records.names():
            record = records.find(model)
            if record is not None and record.job.alignment == name:
                yield Place(
                    f"model {model}",
                    1,
                    "stays",
                    f"of alignment {name}, but for held-out rows; train anew: fedmq models delete "
                    f"PARTY {model} --everywhere",
                )
        if remove:
            store.path(name).unlink(missing_ok=True)
        yield Place(f"alignment {name}", 1, "removable", "the whole alignment; make it anew")


def _blinded(config: PartyFile, person: str, remove: bool) -> Iterator[Place]:
    """The hashes of a prepared alignment say whom it holds to whoever has the key beside them."""
    if not blinded_list_holds(config.state, person):
        return
    if remove:
        key_file(config.state).unlink(missing_ok=True)
    yield Place(
        "kept key of prepared alignments",
        1,
        "removable",
        "with the hashes of all ids: the next alignment blinds the list anew, and until then the "
        "active party keeps a point of this person that it cannot read",
    )


def _held_out(config: PartyFile, person: str, remove: bool) -> Iterator[Place]:
    kept = held_out_rows(config.state)
    for model in kept.names():
        rows = kept.read(model)
        here = np.array([of == person for of in people_of(config.data, rows.ids)])
        if not here.any():
            continue
        if remove:
            others = np.flatnonzero(~here).tolist()
            ids, sets = (tuple(of[row] for row in others) for of in (rows.ids, rows.sets))
            with _as_old(kept.path(model)):
                kept.keep(model, replace(rows, ids=ids, sets=sets, label=rows.label[~here]))
        yield Place(f"held-out rows of model {model}", int(here.sum()), "removable")


def _folds(config: PartyFile, person: str, remove: bool) -> Iterator[Place]:
    folder = config.state / "cross-validations"
    kept: Documents[str] = Documents(folder, TEXT, "is damaged; delete it", suffix=_FOLDS)
    for name in cross_validations(config.state).names():
        header, *lines = (kept.find(name) or "id,fold").splitlines()
        names = [line.rpartition(",")[0].strip('"') for line in lines]
        here = [of == person for of in people_of(config.data, names)]
        if not any(here):
            continue
        if remove:
            left = [line for line, own in zip(lines, here, strict=True) if not own]
            with _as_old(kept.path(name)):
                kept.keep(name, "\n".join([header, *left]) + "\n")
        yield Place(f"folds of cross-validation {name}", sum(here), "removable")


@contextlib.contextmanager
def _as_old(path: Path) -> Iterator[None]:
    """Leave to ``path``, which is rewritten within, its time: the policy counts its age."""
    written = path.stat()
    yield
    os.utime(path, ns=(written.st_atime_ns, written.st_mtime_ns))


def _recordings(config: PartyFile, person: str, remove: bool) -> Iterator[Place]:
    if config.recordings is None:
        return
    for path in _holding(config.recordings, person):
        if remove:
            path.unlink(missing_ok=True)
        yield Place(f"recording {path.name}", 1, "removable", "the whole file")


def _transcripts(config: PartyFile, person: str) -> Iterator[Place]:
    found = len(list(_holding(config.state / "transcripts", person)))
    if found:
        yield Place("transcripts", found, "stays", "they prove trainings; the ten newest are kept")


def _questions(config: PartyFile, person: str) -> Iterator[Place]:
    folder = config.state / "audit"
    if not folder.is_dir():
        return
    hashed = QuestionLog(config.state).hashed(person)
    found = sum(path.read_text(encoding="utf-8").count(hashed) for path in folder.glob("*.jsonl"))
    if found:
        yield Place(
            "questions for scores",
            found,
            "stays",
            "as keyed hashes; audit_days in [online] says how long",
        )


def _asked(config: PartyFile, person: str, remove: bool) -> Iterator[Place]:
    """What limits the questions about a person counts for an hour, and lies there for longer."""
    path = config.state / ASKED_FILE
    with closing(_opened(path)) as file:
        hour = file.execute("SELECT begun, key FROM hour").fetchone() if _has(file, "hour") else ()
        if not hour:
            return
        begun, key = hour
        row = (hashed_person(person, key),)
        query = "SELECT count(*) FROM asked WHERE person = ?"
        (found,) = file.execute(query, row).fetchone()
        if not found:
            return
        over = time.time() - begun > _HOUR
        if over and remove:
            with file:
                file.execute("DELETE FROM asked WHERE person = ?", row)
    why = "" if over else "as keyed hashes, for the hour that they count: ask again after it"
    yield Place("counts of online questions", found, "removable" if over else "stays", why)


def _answered(config: PartyFile, person: str) -> Iterator[Place]:
    """What bounds answers about the same people: hashes that tell whoever has the id."""
    (hashed,) = hashed_ids([person])
    with closing(_opened(config.state / "fedmq.sqlite")) as file:
        query = "SELECT sketch FROM answered_rows"
        sketches = file.execute(query).fetchall() if _has(file, "answered_rows") else []
    files = (config.state / "group-questions").glob("*/*.people")
    kept = [sketch for (sketch,) in sketches], [path.read_bytes() for path in files]
    names = "counts of answered sums", "questions about groups"
    for what, blobs in zip(names, kept, strict=True):
        found = sum(bool((np.frombuffer(blob, "<u8") == hashed).any()) for blob in blobs)
        if found:
            yield Place(what, found, "stays", "as hashes; without them limits could be passed")


def _opened(path: Path) -> sqlite3.Connection:
    """The database at ``path``, an empty one if there is none; ConfigError if it is unusable."""
    try:
        file = sqlite3.connect(path if path.exists() else ":memory:")
        _has(file, "")
    except sqlite3.Error as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return file


def _has(file: sqlite3.Connection, name: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return file.execute(query, (name,)).fetchone() is not None


def _holding(folder: Path, person: str) -> Iterator[Path]:
    """The files below ``folder`` in which the id stands, and not as a part of another one.

    Raises:
        ConfigError: a file cannot be read: nobody may take it for one without the person.
    """
    name = person.encode()
    length = re.escape(b"\xd9" + bytes([len(name) & 0xFF]))  # of a long text in msgpack
    whole = re.compile(
        rb"(?:(?<=" + length + rb")|(?<![0-9A-Za-z_-]))" + re.escape(name) + rb"(?![0-9A-Za-z_-])"
    )
    for path in sorted(folder.rglob("*")):
        try:
            found = path.is_file() and whole.search(path.read_bytes())
        except FileNotFoundError:  # deleted since the folder was listed
            continue
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
        if found:
            yield path

"""Where is a person in a party's files, and what of that can be taken out?

Everything here is of this party alone: no other party is asked, and none is told.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from fedmq.errors import DataError
from fedmq.party.configuration.party import PartyFile
from fedmq.party.consent.audit_log import QuestionLog
from fedmq.party.data.id_column import comparable
from fedmq.party.data.loading import read_id_list
from fedmq.party.data.repeated_ids import people_of
from fedmq.party.store.alignments import AlignmentStore
from fedmq.party.store.documents import (
    TEXT,
    Documents,
    cross_validations,
    held_out_rows,
    training_records,
)

__all__ = ["Place", "places_of"]

_FOLDS = ".folds.csv"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a person is: ``count`` rows, entries or files of ``what``.

    ``done``: whether they are gone, can be taken out, or stay; ``why`` says more.
    """

    what: str
    count: int
    done: Literal["removed", "removable", "stays"]
    why: str = ""


def places_of(config: PartyFile, name: str, remove: bool) -> list[Place]:
    """Where the person of the id ``name`` is at the party of ``config``; with ``remove`` taken out.

    Raises:
        DataError: the id is empty, or a file is damaged.
        ConfigError: the disk refuses; what was taken out before stays out.
    """
    person = comparable([name], config.data)[0]
    if not person:
        raise DataError("id: it is empty")
    found = [
        *_table(config, person),
        *_alignments(config, person, remove),
        *_held_out(config, person, remove),
        *_folds(config, person, remove),
        *_recordings(config, person, remove),
        *_transcripts(config, person),
        *_questions(config, person),
    ]
    if not remove:
        return found
    return [
        replace(place, done="removed") if place.done == "removable" else place for place in found
    ]


def _table(config: PartyFile, person: str) -> Iterator[Place]:
    held = config.data.label is not None
    if person in set(read_id_list.bind(config.party, config.data, held).run().strings()):
        yield Place("the party's own table", 1, "stays", f"take it out of {config.data.place}")


def _alignments(config: PartyFile, person: str, remove: bool) -> Iterator[Place]:
    store = AlignmentStore(config.state)
    records = training_records(config.state)
    for model in records.names():
        record = records.find(model)
        if record is not None and record.job.alignment not in store.names():
            why = "the list of whom it learned from is not kept: it may have been this person"
            yield Place(f"model {model}", 1, "stays", why)
    for name in store.names():
        ids = people_of(config.data, [held for held in store.load(name).ids if held is not None])
        if person not in ids:
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
            kept.keep(name, "\n".join([header, *left]) + "\n")
        yield Place(f"folds of cross-validation {name}", sum(here), "removable")


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


def _holding(folder: Path, person: str) -> Iterator[Path]:
    """The files below ``folder`` in which the id stands, and not as a part of another one."""
    name = person.encode()
    length = re.escape(b"\xd9" + bytes([len(name) & 0xFF]))  # of a long text in msgpack
    whole = re.compile(
        rb"(?:(?<=" + length + rb")|(?<![0-9A-Za-z_-]))" + re.escape(name) + rb"(?![0-9A-Za-z_-])"
    )
    for path in sorted(folder.rglob("*")):
        with contextlib.suppress(OSError):
            if path.is_file() and whole.search(path.read_bytes()):
                yield path

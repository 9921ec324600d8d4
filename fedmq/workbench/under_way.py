"""Which session of a party is under way, or can go on, with the rows of a person?"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedmq.errors import ConfigError, DaemonAway
from fedmq.party.configuration.data import DataSection
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.loading import read_id_list
from fedmq.party.data.repeated_ids import people_of
from fedmq.party.operations.control import request_daemon
from fedmq.party.store.alignments import AlignmentStore

__all__ = ["UnderWay", "alignment_holds", "in_own_table", "session_with", "table_holds"]

_TRAINING = "training"
_ROWLESS = ("deployment",)
"""Sessions about models alone."""


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A session that has not ended; ``job`` of a training is empty at a passive party."""

    session: str
    purpose: str
    name: str
    job: str = ""


def session_with(config: PartyFile, person: str) -> UnderWay | None:
    """The first session that holds rows of ``person``, or may hold them.

    A daemon that does not run goes on with its trainings when it starts: these count.

    Raises:
        ConfigError: the state folder's file of sessions cannot be read.
        DataError: the table or an alignment cannot be read.
    """
    return next((found for found in _sessions(config) if _holds(config, found, person)), None)


def _sessions(config: PartyFile) -> Iterator[UnderWay]:
    stored = list(_stored(config))
    yield from stored
    with contextlib.suppress(DaemonAway):
        live: list[dict[str, Any]] = request_daemon(config.state, {"do": "sessions"})
        known = {found.session for found in stored}
        for found in live:
            idle = found["ended"] is not None or found["purpose"] in _ROWLESS
            if not idle and found["session"] not in known:
                yield UnderWay(found["session"], found["purpose"], found["model"])


def _stored(config: PartyFile) -> Iterator[UnderWay]:
    path = config.state / "fedmq.sqlite"
    if not path.exists():
        return
    query = "SELECT id, model, job FROM sessions WHERE state = 'running' ORDER BY rowid"
    try:
        with contextlib.closing(sqlite3.connect(path)) as file:
            rows = file.execute(query).fetchall()
    except sqlite3.Error as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    for session, model, job in rows:
        yield UnderWay(session, _TRAINING, model, job)


def _holds(config: PartyFile, found: UnderWay, person: str) -> bool:
    """Whether rows of ``person`` are in it; also where only this party's lists could tell."""
    names = AlignmentStore(config.state).names()
    if found.job:
        alignment = TrainingJob.of_stored(found.job).alignment
        if alignment is None:
            return in_own_table(config, person)
        return alignment not in names or alignment_holds(config, alignment, person)
    # A passive party does not keep on whose ids its session goes.
    return in_own_table(config, person) or any(
        alignment_holds(config, name, person) for name in names
    )


def table_holds(party: str, data: DataSection, labelled: bool, person: str) -> bool:
    """Whether ``person`` has a row in the table of ``data``, which has a label if ``labelled``."""
    return person in set(read_id_list.bind(party, data, labelled).run().strings())


def alignment_holds(config: PartyFile, name: str, person: str) -> bool:
    """Whether ``person`` is in the kept alignment ``name``, under any id of several rows."""
    held = [one for one in AlignmentStore(config.state).load(name).ids if one is not None]
    return person in people_of(config.data, held)


def in_own_table(config: PartyFile, person: str) -> bool:
    """Whether ``person`` has a row in the table that the party trains with."""
    return table_holds(config.party, config.data, config.data.label is not None, person)

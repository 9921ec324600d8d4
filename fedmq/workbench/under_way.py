"""Which session of a party is under way, or can go on, with the rows of a person?"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedmq.errors import ConfigError, DaemonAway
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.loading import read_id_list
from fedmq.party.data.repeated_ids import people_of
from fedmq.party.operations.control import request_daemon
from fedmq.party.store.alignments import AlignmentStore

__all__ = ["UnderWay", "session_with"]

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
    store = AlignmentStore(config.state)
    if found.job:
        alignment = TrainingJob.of_stored(found.job).alignment
        if alignment is None:
            return _in_table(config, person)
        return alignment not in store.names() or _in_alignment(config, store, alignment, person)
    # A passive party does not keep on whose ids its session goes.
    return _in_table(config, person) or any(
        _in_alignment(config, store, name, person) for name in store.names()
    )


def _in_table(config: PartyFile, person: str) -> bool:
    held = config.data.label is not None
    return person in set(read_id_list.bind(config.party, config.data, held).run().strings())


def _in_alignment(config: PartyFile, store: AlignmentStore, name: str, person: str) -> bool:
    held = [one for one in store.load(name).ids if one is not None]
    return person in people_of(config.data, held)

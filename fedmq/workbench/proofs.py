"""What do transcripts prove of a training? What others have signed here, and what they show.

A passive party's transcript holds its table: who has it is an auditor, or the party itself.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedmq.accountability.transcript_file import TranscriptFile, export
from fedmq.accountability.verification import is_signed, verify
from fedmq.errors import ConfigError, DataError, Inconsistent
from fedmq.party.store.transcripts import session_folder
from fedmq.workbench.own_shares import OwnShares

__all__ = ["Proofs", "proofs_of"]


@dataclass(frozen=True, slots=True)
class Proofs:
    """By passive party: the trees under whose answers its signature is here, and verdicts.

    A verdict is on the transcript that somebody was shown, in words. ``none`` says why nothing is
    kept.
    """

    signed: Mapping[str, int] = field(default_factory=dict)
    verdicts: Mapping[str, str] = field(default_factory=dict)
    none: str = ""


def proofs_of(shares: OwnShares, session: str, shown: Sequence[Path]) -> Proofs:
    """What the active party has of ``session``, and what replaying the files ``shown`` says.

    Raises:
        ConfigError, DataError: a file is no transcript of this session, or nothing binds it.
    """
    held, none = None, ""
    try:
        held = _held(shares, session)
    except ConfigError as error:  # the engine's answers cannot be replayed
        none = str(error)
    signed = {} if held is None else _signed(shares, held)
    if not signed and not shares.federation.keys:
        none = none or "the federation has no keys"
    elif not signed:
        none = none or "no party has signed an answer, or it was long ago"
    verdicts = {}
    for path in shown:
        transcript = TranscriptFile.read(path)
        if transcript.session != session:
            raise DataError(f"{path}: a transcript of session {transcript.session}, not {session}")
        verdicts[transcript.party] = _verdict(shares, transcript, held)
    return Proofs(signed, verdicts, none)


def _held(shares: OwnShares, session: str) -> TranscriptFile | None:
    """This party's own transcript: the signatures of the others; None if none is kept."""
    if not session_folder(shares.state, session).is_dir():
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "own.transcript"
        export(shares.state, shares.party, session, path)
        return TranscriptFile.read(path)


def _signed(shares: OwnShares, held: TranscriptFile) -> dict[str, int]:
    trees: dict[str, set[int]] = defaultdict(set)
    for signed in held.statements:
        if is_signed(signed, shares.federation):
            trees[signed.statement.passive].add(signed.statement.tree)
    return {party: len(numbers) for party, numbers in sorted(trees.items())}


def _verdict(shares: OwnShares, shown: TranscriptFile, held: TranscriptFile | None) -> str:
    """What ``fedmq transcript verify`` finds, in words: a lie is a finding as well."""
    try:
        found = verify(shown, shares.federation, held)
    except Inconsistent as error:
        return f"not honest: {error.what}"
    thin = f"; the sums of {found.thin_trees} trees were not made again" * bool(found.thin_trees)
    return (
        f"honest: {found.answers} answers in {found.trees} trees are those that its table of "
        f"{found.rows:,} rows gives; {found.signed} of these trees are signed by both sides{thin}"
    )

"""Which of a party's answers are not those that its table gives?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fedmq.accountability.replay import Replay
from fedmq.accountability.transcript_file import AttemptTranscript, KeptMessage, TranscriptFile
from fedmq.errors import ConfigError, DataError, Inconsistent
from fedmq.messages import training
from fedmq.messages.body import Body
from fedmq.party.configuration.federation import Federation
from fedmq.protocol.session_records import PassiveTree, RunningHash, SignedStatement, Statement

__all__ = ["Verdict", "is_signed", "verify"]

_WRONG = {
    training.SessionAccept.kind: "it shows another table, secret or policy than it committed to",
    training.EngineSetup.kind: "what it sent before the first tree is not what its table gives",
    training.HistogramReply.kind: "its sums are not those of its table",
    training.NodeDeclined.kind: "it declined a node that its policy does not decline",
    training.SplitOutcome.kind: "other rows go left, or another record, than its table says",
    training.CircuitPiece.kind: "its circuits, transfers or shares are not those that its table "
    "and secret give",
    training.TreeSaved.kind: "it handed on, or was handed, other shares than it says",
}


@dataclass
class Verdict:
    """The proof about ``party``: all its ``answers`` are those that its table gives.

    The active party's file or signature binds the ``signed`` trees. The sums of ``thin_trees`` were
    not replayed, nor their circuits, because what was asked was left out.
    """

    party: str
    session: str
    engine: str
    rows: int
    columns: tuple[str, ...]
    attempts: int = 0
    trees: int = 0
    thin_trees: int = 0
    signed: int = 0
    answers: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def verify(
    shown: TranscriptFile, federation: Federation, held: TranscriptFile | None = None
) -> Verdict:
    """Replay the transcript that a party has ``shown``, against the file of the active party.

    Without ``held`` the active party's own signatures bind the party's file.

    Raises:
        Inconsistent: the first dishonest answer, by tree and node, or a missing message.
        DataError: the files are damaged, or the active party has signed nothing of them.
        ConfigError: the files are of other sessions, or swapped.
    """
    return _Verification(shown, federation, held).verdict()


@dataclass
class _Verification:
    shown: TranscriptFile
    federation: Federation
    held: TranscriptFile | None
    saved: list[PassiveTree] = field(default_factory=list)

    def verdict(self) -> Verdict:
        self._check_files()
        commitment = next(
            attempt.commitment for attempt in self.shown.attempts.values() if attempt.commitment
        )
        verdict = Verdict(
            self.shown.party,
            self.shown.session,
            commitment.settings.engine,
            len(commitment.values),
            commitment.features,
        )
        for number in sorted({*self.shown.attempts, *(s.attempt for s in self._held())}):
            statements = [s for s in self._held() if s.attempt == number]
            attempt = self.shown.attempts.get(number)
            if attempt is None or attempt.commitment is None:
                raise self._lie(f"attempt {number}: it shows nothing of what it signed", number)
            self._check_signed(attempt, statements, verdict)
            self._replay(attempt, verdict)
        self._check_lots()
        self._check_bound(verdict)
        return verdict

    # The files

    def _check_files(self) -> None:
        shown, held, federation = self.shown, self.held, self.federation
        if shown.party not in federation.passive:
            raise ConfigError(
                f"{shown.party}: a transcript of a passive party of {federation.name} is replayed; "
                "give the active party's with --signed"
            )
        if held is not None and (held.session, held.party) != (shown.session, federation.active):
            raise ConfigError(
                f"--signed: a transcript of {held.party} about session {held.session}; that of "
                f"{federation.active} about {shown.session} is needed"
            )
        if not any(attempt.commitment for attempt in shown.attempts.values()):
            raise DataError(f"{shown.party}: its transcript shows no table")
        for signed in [] if held is None else held.statements:
            statement, keys = signed.statement, federation.pinned(signed.statement.passive)
            if keys and not is_signed(signed, federation):
                raise DataError(
                    f"the file of {federation.active}: what {statement.passive} said up to tree "
                    f"{statement.tree} of attempt {statement.attempt} is not signed with a key of "
                    "the federation file; if keys changed since, give the file of that time"
                )

    def _held(self) -> list[Statement]:
        """The statements that the party has provably signed, by the active party's file."""
        if self.held is None:
            return []
        statements = [signed.statement for signed in self.held.statements]
        return [
            statement
            for statement in statements
            if statement.passive == self.shown.party and statement.session == self.shown.session
        ]

    # The signatures that bind an attempt

    def _check_signed(
        self, attempt: AttemptTranscript, held: Sequence[Statement], verdict: Verdict
    ) -> None:
        """Check that both sides have signed the hashes of the party's messages."""
        own = {statement.tree: statement for statement in self._stated(attempt)}
        for statement in held:
            if own.get(statement.tree) != statement:
                raise self._lie(
                    f"attempt {attempt.number}, tree {statement.tree}: it does not show the "
                    "messages, or the table, that it signed",
                    attempt.number,
                )
        signed = {statement.tree for statement in held}
        if self.held is None:
            signed = set(self._countersigned(attempt, own))
        verdict.signed += len(signed)

    def _stated(self, attempt: AttemptTranscript) -> Iterator[Statement]:
        """The statement due at the end of each tree, from the shown messages."""
        assert attempt.commitment is not None
        questions = self._hashes(attempt.asked)
        finished = {
            question.tree: questions[number]
            for number, question in enumerate(attempt.asked)
            if question.kind == training.TreeFinished.kind
        }
        for answer, running in zip(attempt.answers, self._hashes(attempt.answers), strict=True):
            tree = answer.tree
            if answer.kind == training.TreeSaved.kind and tree is not None and tree in finished:
                yield Statement(
                    self.shown.session,
                    attempt.number,
                    self.federation.active,
                    self.shown.party,
                    attempt.commitment.root,
                    tree,
                    finished[tree],
                    running,
                )

    def _hashes(self, messages: Sequence[KeptMessage]) -> list[RunningHash]:
        """The running hash after each message."""
        running, hashes = RunningHash(), []
        for message in messages:
            running = running.after(message.hash)
            hashes.append(running)
        return hashes

    def _countersigned(
        self, attempt: AttemptTranscript, own: dict[int, Statement]
    ) -> Iterator[int]:
        """The trees whose statements the active party has signed."""
        keys = self.federation.pinned(self.federation.active)
        last = -1
        for question in attempt.questions:
            body = question.body
            if isinstance(body, training.TreeFinished):
                last = body.tree
            elif isinstance(body, training.TreeStarted | training.SessionFinished):
                stated = own[last].to_bytes() if last in own else b""
                if stated and any(key.verifies(stated, body.signature) for key in keys):
                    yield last

    # The replay

    def _replay(self, attempt: AttemptTranscript, verdict: Verdict) -> None:
        assert attempt.commitment is not None
        accepted = next(
            (
                answer.body.trees
                for answer in attempt.answers
                if isinstance(answer.body, training.SessionAccept)
            ),
            0,
        )
        if accepted and (not self.saved or self.saved[-1].number + 1 < accepted):
            raise self._lie(
                f"attempt {attempt.number}: it had {accepted} trees, and does not show how "
                "they grew",
                attempt.number,
            )
        thin = attempt.thin_trees()
        saved = [tree for tree in self.saved if tree.number < accepted]
        replay = Replay(
            self.shown.party, self.federation.active, attempt.commitment, saved, thin, attempt.won
        )
        replay.run([question.body for question in attempt.questions])
        self._compare(attempt, replay, thin, verdict)
        self.saved = replay.saved
        verdict.attempts += 1
        verdict.trees += len(attempt.lots())
        verdict.thin_trees += len(thin & set(attempt.lots()))

    def _compare(
        self,
        attempt: AttemptTranscript,
        replay: Replay,
        thin: frozenset[int],
        verdict: Verdict,
    ) -> None:
        """Compare the answers up to the last saved tree; later answers may be cut off."""
        saved = [a.sequence for a in attempt.answers if a.kind == training.TreeSaved.kind]
        for answer in attempt.answers:
            if answer.sequence > max(saved, default=0):
                break
            if answer.tree in thin and _is_left_out(answer.body):
                continue
            if not replay.has(answer.body, answer.hash):
                raise self._wrong(attempt, answer)
            verdict.answers += 1

    def _wrong(self, attempt: AttemptTranscript, answer: KeptMessage) -> Inconsistent:
        what = _WRONG.get(answer.kind, f"an honest party sends another {answer.kind!r}, or none")
        node = getattr(answer.body, "node", None)
        place = [f"attempt {attempt.number}"]
        place += [] if answer.tree is None else [f"tree {answer.tree}"]
        place += [] if node is None else [f"node {node}"]
        if isinstance(answer.body, training.CircuitPiece):
            place += [f"parcel {answer.body.parcel}", f"piece {answer.body.piece}"]
        return self._lie(f"{', '.join(place)}: {what}", attempt.number)

    def _check_lots(self) -> None:
        """Check that the party did not choose the trees whose gradients it keeps."""
        lots: dict[bool, list[int]] = {True: [], False: []}
        for attempt in self.shown.attempts.values():
            thin, whole = attempt.thin_trees(), attempt.whole_trees()
            for tree, lot in attempt.lots().items():
                if tree in thin or tree in whole:  # other trees have nothing to leave out
                    lots[tree in thin].append(lot)
        if max(lots[False], default=-1) > min(lots[True], default=2**32):
            raise self._lie("it left out gradients of a tree with a lower lot than others", 0)

    def _check_bound(self, verdict: Verdict) -> None:
        """Raise DataError if nothing binds the file: a party can make up a whole training.

        An attempt may break off between a tree and the signature under it.
        """
        active = self.federation.active
        if self.federation.keys and not verdict.signed and verdict.trees > verdict.attempts:
            raise DataError(
                f"{verdict.party}: {active} has signed none of its {verdict.trees} trees: a party "
                f"can make up such a transcript as a whole; ask {active} for its file (--signed), "
                "and for the federation file of that time if keys have changed"
            )

    def _lie(self, what: str, attempt: int) -> Inconsistent:
        place: dict[str, int | str] = {"session": self.shown.session, "attempt": attempt}
        return Inconsistent(self.shown.party, what, place)


def _is_left_out(answer: Body) -> bool:
    """Whether an answer in a thin tree follows from what is left out."""
    kinds = training.HistogramReply | training.CircuitPiece
    hands_on = isinstance(answer, training.TreeSaved) and (answer.given or answer.taken)
    return isinstance(answer, kinds) or bool(hands_on)


def is_signed(signed: SignedStatement, federation: Federation) -> bool:
    """Whether the passive party has signed it with a key that the federation file pins."""
    data = signed.statement.to_bytes()
    keys = federation.pinned(signed.statement.passive)
    return any(key.verifies(data, signed.signature) for key in keys)

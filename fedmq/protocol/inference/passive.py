"""How does a passive party answer while a file is scored? Directions, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.changes import MOST_COLUMNS, ChangeRules, OfferedChanges
from fedmq.boosting.model.share import PassiveShare
from fedmq.computation import Computation
from fedmq.errors import FedmqError, ProtocolError, Refused
from fedmq.messages import inference
from fedmq.messages.array import Array, Bitmap
from fedmq.messages.body import RecordColumns
from fedmq.privacy.plan import single
from fedmq.protocol.events import ComputationFailed, Finish
from fedmq.protocol.inference.computations import offer_changes
from fedmq.protocol.inference.sealed_passive import SealedAnswers
from fedmq.protocol.inference.states import (
    DIRECTIONS,
    OFFERED,
    PASSIVE_INFERENCE,
    ROWS,
    ROWS_FOUND,
    PassiveInferenceState,
)
from fedmq.protocol.machine import OTHER_TRAINING, UNLOADED, Machine, Speaker, on_message, turn_down
from fedmq.protocol.tree_walk import IF_NO_OLD_SHARE, OneWay, answer_hop, answer_rows

__all__ = ["PassiveInference", "PassiveRows", "with_missing_row"]

State = PassiveInferenceState
_LONGEST_TEXT = 200  # characters; the rest is left out


@dataclass(frozen=True, slots=True, eq=False)
class PassiveRows:
    """A passive party's data for answers: its share, and ``values`` float32 (rows, features).

    ``row_of`` finds a row by its id; None if rows are matched by position.
    """

    share: PassiveShare
    values: NDArray[np.float32]
    row_of: Mapping[str, int] | None


def with_missing_row(rows: PassiveRows) -> PassiveRows:
    """The ``rows``, and as the last one that of people without a row: all values are missing."""
    missing = np.full((1, rows.values.shape[1]), np.nan, np.float32)
    return replace(rows, values=np.concatenate([rows.values, missing]))


class PassiveInference(Machine):
    """Answers the hops of ``peer``; finishes without a result. ``load`` computes PassiveRows.

    ``consent`` raises Refused if the party does not agree to the terms. ``columns`` takes a share
    and its number of explained records; it returns the columns that the owner shows of them.
    Where scores are sealed, ``others`` are the neighbours in the order of passive parties, and
    ``seed`` is a fresh secret of 32 bytes. ``changes`` returns the owner's rules for what it tells
    of changes, None where it tells nothing; it is asked after ``consent``.
    """

    TABLE = PASSIVE_INFERENCE
    PARTS = (SealedAnswers,)
    SPEAKERS = dict.fromkeys(
        (
            inference.InferenceOpen,
            inference.SampleIds,
            inference.InferenceHop,
            inference.InferenceRows,
            inference.ChangeChosen,
            inference.SealedQuery,
            inference.InferenceFinished,
        ),
        Speaker.ACTIVE,
    )
    failed_state = State.FAILED
    interrupted_state = State.INTERRUPTED

    def __init__(
        self,
        peer: str,
        load: Computation,
        consent: Callable[[inference.InferenceOpen], None] = lambda _: None,
        columns: Callable[[PassiveShare, int], RecordColumns | None] = lambda _, __: None,
        others: Sequence[str] = (),
        seed: bytes = b"",
        changes: Callable[[], ChangeRules | None] = lambda: None,
    ) -> None:
        super().__init__(State.READY, (peer, *others), active=peer)
        self._load = load
        self._consent = consent
        self._columns = columns
        self._seed = seed
        self._changes = changes
        self._offered: OfferedChanges | None = None
        self._terms: inference.InferenceOpen
        self._rows: PassiveRows | None = None
        self._ids: list[str] = []
        self._id_pieces = 0
        self._row_of: NDArray[np.int64]
        self._person_of: NDArray[np.int64]
        self._one_way: OneWay | None = None

    @on_message(inference.InferenceOpen)
    def _on_open(self, _: str, body: inference.InferenceOpen) -> None:
        try:
            self._consent(body)
        except FedmqError as error:
            self._refuse(Refused(str(error)))
            return
        self._terms = body
        self._id_pieces = body.id_pieces
        self._run(ROWS, single(self._load), self._with_rows)

    def _with_rows(self, rows: PassiveRows) -> None:
        self._rows = rows
        self._begin_when_complete()

    @on_message(inference.SampleIds)
    def _on_ids(self, _: str, body: inference.SampleIds) -> None:
        listed = body.start + len(body.ids)
        if self._id_pieces == 0 or body.start != len(self._ids) or listed > self._terms.rows:
            raise ProtocolError(
                f"sample ids begin at row {body.start}, not at row {len(self._ids)}"
            )
        self._ids.extend(body.ids)
        self._id_pieces -= 1
        self._begin_when_complete()

    def _begin_when_complete(self) -> None:
        if self._rows is None or self._id_pieces:
            return
        try:
            self._row_of = self._found(self._rows)
        except Refused as error:
            self._refuse(error)
            return
        unknown = self._row_of < 0
        # Nothing is told about people without a row here, so each of their rows is a person.
        person = np.where(unknown, -1 - np.arange(len(unknown)), self._row_of)
        people, person_of = np.unique(person, return_inverse=True)
        self._person_of = person_of.astype(np.int64)
        if self._rows.share.places:
            self._one_way = OneWay(self._rows.share.places, len(people))
        if unknown.any():
            self._rows = with_missing_row(self._rows)
            self._row_of[unknown] = len(self._rows.values) - 1
        if (sealed := self._terms.sealed) is not None:
            here = self._rows
            try:
                answers = SealedAnswers(
                    self, here.share, here.values, self._row_of, sealed, self._seed
                )
            except Refused as error:
                self._refuse(error)
                return
            self._attach(answers)
        rules = self._changes() if self._terms.asks_changes else None
        if rules is None:
            self._accept(unknown)
            return
        table, row = self._rows.share.lookup_table, self._rows.values[self._row_of[0]]
        offering = offer_changes.bind(table, self._terms.explained_records, row, rules)
        self._run(OFFERED, single(offering), partial(self._with_offered, unknown))

    def _with_offered(self, unknown: NDArray[np.bool_], offered: OfferedChanges) -> None:
        self._offered = offered
        self._accept(unknown)

    def _accept(self, unknown: NDArray[np.bool_]) -> None:
        assert self._rows is not None
        changes = None
        if self._offered is not None:
            alternatives = self._offered.alternatives
            changes = inference.ChangesOffered(
                column=Array.of(alternatives.column.astype(np.uint32)),
                left=Bitmap.of(alternatives.left.ravel()),
            )
        self._move(ROWS_FOUND)
        explained = self._terms.explained_records
        accept = inference.InferenceAccept(
            unknown_rows=Bitmap.of(unknown if unknown.any() else unknown[:0]),
            columns=self._columns(self._rows.share, explained) if explained else None,
            offered=changes,
        )
        self._send(self.peers[0], accept)

    def _found(self, here: PassiveRows) -> NDArray[np.int64]:
        """The local row of each row of the session; -1 for an unknown id."""
        if self._terms.training and here.share.training != self._terms.training:
            raise Refused(OTHER_TRAINING)
        records = len(here.share.lookup_table)
        if self._terms.explained_records > records:
            raise Refused(
                f"this party has {records} records, not {self._terms.explained_records}; the "
                "parties hold shares of different models"
            )
        if here.row_of is None:
            if self._terms.rows != len(here.values):
                raise Refused(f"this party has {len(here.values)} rows, not {self._terms.rows}")
            return np.arange(self._terms.rows)
        if len(self._ids) != self._terms.rows:
            raise Refused(f"{len(self._ids)} ids came for {self._terms.rows} rows")
        unknown = [name for name in self._ids if name not in here.row_of]
        if unknown and not self._terms.partial:
            some = ", ".join(map(repr, unknown[:3]))
            raise Refused(f"this party does not know {len(unknown)} of the ids, for example {some}")
        return np.array([here.row_of.get(name, -1) for name in self._ids], dtype=np.int64)

    def _on_computation_failed(self, event: ComputationFailed) -> None:
        if self.state is State.LISTING:
            # The error may quote this party's data, so the peer does not read it.
            self._refuse(event.error, UNLOADED)
        else:
            super()._on_computation_failed(event)

    def _refuse(self, error: FedmqError, reason: str = "") -> None:
        turn_down(self, self.peers[0], reason or str(error))
        self._fail(error, except_for=self.peers[0])

    @on_message(inference.InferenceHop)
    def _on_hop(self, _: str, hop: inference.InferenceHop) -> None:
        assert self._rows is not None
        if self._terms.sealed is not None:
            raise ProtocolError(f"hop {hop.hop} asks for directions, and scores are sealed")
        records, table = hop.records.numpy(), self._rows.share.lookup_table
        if len(records) and int(records.max()) >= len(table):
            raise ProtocolError(
                f"hop {hop.hop} asks for records that do not exist{IF_NO_OLD_SHARE}"
            )
        here, counts = self._asked(hop), hop.counts.numpy()
        pairs = self._person_of[hop.rows.numpy()], np.repeat(records.astype(np.int64), counts)
        if self._one_way is not None:
            self._one_way.ask(*pairs)
        computation = answer_hop.bind(table, self._rows.values, records, counts, here)
        self._run(DIRECTIONS, single(computation), partial(self._answer_hop, hop.hop, pairs))

    def _answer_hop(
        self, hop: int, pairs: tuple[NDArray[np.int64], NDArray[np.int64]], left: NDArray[np.bool_]
    ) -> None:
        if self._one_way is not None:
            self._one_way.answer(*pairs, left)
        self._answer(hop, left)

    @on_message(inference.InferenceRows)
    def _on_rows(self, _: str, asked: inference.InferenceRows) -> None:
        records = self._terms.explained_records
        if not records or self._terms.sealed is not None:
            raise ProtocolError(f"hop {asked.hop} asks for all directions, which the terms exclude")
        assert self._rows is not None
        here, table = self._asked(asked), self._rows.share.lookup_table
        computation = answer_rows.bind(table, self._rows.values, records, here)
        self._run(DIRECTIONS, single(computation), partial(self._answer, asked.hop))

    def _asked(self, hop: inference.InferenceHop | inference.InferenceRows) -> NDArray[np.int64]:
        """The local rows that the hop asks about."""
        rows = hop.rows.numpy()
        if len(rows) and int(rows.max()) >= len(self._row_of):
            raise ProtocolError(f"hop {hop.hop} asks for rows that do not exist")
        here: NDArray[np.int64] = self._row_of[rows]
        return here

    def _answer(self, hop: int, left: NDArray[np.bool_]) -> None:
        self._send(self.peers[0], inference.HopReply(hop=hop, left=Bitmap.of(left)))

    @on_message(inference.ChangeChosen)
    def _on_chosen(self, _: str, chosen: inference.ChangeChosen) -> None:
        numbers = chosen.numbers.numpy()
        if self._offered is None:
            raise ProtocolError("a change is chosen of which none is left to tell")
        told = self._offered.told
        if not 0 < len(numbers) <= MOST_COLUMNS or int(numbers.max()) >= len(told):
            raise ProtocolError(f"{len(numbers)} changes are chosen that were not offered so")
        self._offered = None  # one choice a session: each one tells thresholds
        words = [told[number] for number in numbers.tolist()]
        self._send(
            self.peers[0],
            inference.ChangeTold(
                told_columns=tuple(column[:_LONGEST_TEXT] for column, _ in words),
                told_changes=tuple(change[:_LONGEST_TEXT] for _, change in words),
            ),
        )

    @on_message(inference.InferenceFinished)
    def _on_finished(self, _: str, __: inference.InferenceFinished) -> None:
        self._emit(Finish(None))

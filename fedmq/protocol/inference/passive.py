"""A feature holder's machine of an inference session: directions, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.share import PassiveShare
from fedmq.computation import Computation
from fedmq.errors import FedmqError, ProtocolError, Refused
from fedmq.messages import inference
from fedmq.messages.array import Bitmap
from fedmq.messages.body import SessionRefuse
from fedmq.privacy.plan import single
from fedmq.protocol.events import ComputationFailed, Finish, Received
from fedmq.protocol.inference.computations import AnswerHop
from fedmq.protocol.inference.states import PASSIVE_INFERENCE, PassiveInferenceState
from fedmq.protocol.machine import Machine

__all__ = ["PassiveInference", "PassiveRows"]

State = PassiveInferenceState


@dataclass(frozen=True, slots=True, eq=False)
class PassiveRows:
    """What a feature holder answers from: its share, and ``values`` float32 (rows, features).

    ``row_of`` finds a row by its id; None where rows are matched by position.
    """

    share: PassiveShare
    values: NDArray[np.float32]
    row_of: Mapping[str, int] | None


class PassiveInference(Machine):
    """Answers the hops of ``peer``; finishes with nothing. ``load`` computes PassiveRows.

    ``consent`` raises Refused when the party does not agree to the terms.
    """

    TABLE = PASSIVE_INFERENCE
    failed_state = State.FAILED
    interrupted_state = State.INTERRUPTED

    def __init__(
        self,
        peer: str,
        load: Computation,
        consent: Callable[[inference.InferenceOpen], None] = lambda _: None,
    ) -> None:
        super().__init__(State.READY, (peer,))
        self._load = load
        self._consent = consent
        self._terms: inference.InferenceOpen
        self._rows: PassiveRows | None = None
        self._ids: list[str] = []
        self._id_pieces = 0
        self._row_of: NDArray[np.int64]

    def _on_open(self, event: Received) -> None:
        assert isinstance(event.body, inference.InferenceOpen)
        try:
            self._consent(event.body)
        except FedmqError as error:
            self._refuse(str(error))
            return
        self.state = State.LISTING
        self._terms = event.body
        self._id_pieces = event.body.id_pieces
        self._run(single(self._load), self._with_rows)

    def _with_rows(self, rows: PassiveRows) -> None:
        self._rows = rows
        self._begin_when_complete()

    def _on_ids(self, event: Received) -> None:
        said = event.body
        assert isinstance(said, inference.SampleIds)
        listed = said.start + len(said.ids)
        if self._id_pieces == 0 or said.start != len(self._ids) or listed > self._terms.rows:
            raise ProtocolError(f"sample ids from row {said.start} on, {len(self._ids)} was next")
        self._ids.extend(said.ids)
        self._id_pieces -= 1
        self._begin_when_complete()

    def _begin_when_complete(self) -> None:
        if self._rows is None or self._id_pieces:
            return
        try:
            self._row_of = self._found(self._rows)
        except Refused as error:
            self._refuse(str(error))
            return
        self.state = State.ANSWERING
        self._send(self.peers[0], inference.InferenceAccept())

    def _found(self, here: PassiveRows) -> NDArray[np.int64]:
        """The row here of each row of the session."""
        if here.row_of is None:
            if self._terms.rows != len(here.values):
                raise Refused(f"{len(here.values)} rows are here, not {self._terms.rows}")
            return np.arange(self._terms.rows)
        if len(self._ids) != self._terms.rows:
            raise Refused(f"{len(self._ids)} ids came for {self._terms.rows} rows")
        unknown = [name for name in self._ids if name not in here.row_of]
        if unknown:
            some = ", ".join(map(repr, unknown[:3]))
            raise Refused(f"{len(unknown)} of the ids are unknown here, such as {some}")
        return np.array([here.row_of[name] for name in self._ids], dtype=np.int64)

    def _on_unprepared(self, event: ComputationFailed) -> None:
        # What went wrong may quote this party's data: that is for its own eyes.
        reason = "its own data could not be loaded; its log says why"
        self._send(self.peers[0], SessionRefuse(reason=reason))
        self._fail(event.error, but=self.peers[0])

    def _refuse(self, reason: str) -> None:
        self._send(self.peers[0], SessionRefuse(reason=reason[:2000]))
        self._fail(Refused(reason), but=self.peers[0])

    def _on_hop(self, event: Received) -> None:
        hop = event.body
        assert isinstance(hop, inference.InferenceHop)
        assert self._rows is not None
        rows, records = hop.rows.numpy(), hop.records.numpy()
        table = self._rows.share.lookup_table
        if (len(rows) and int(rows.max()) >= len(self._row_of)) or (
            len(records) and int(records.max()) >= len(table)
        ):
            raise ProtocolError(f"hop {hop.hop} asks for rows or records that do not exist")
        step = AnswerHop(table, self._rows.values, records, hop.counts.numpy(), self._row_of[rows])
        self._run(single(step), partial(self._answer, hop.hop))

    def _answer(self, hop: int, left: NDArray[np.bool_]) -> None:
        self._send(self.peers[0], inference.HopReply(hop=hop, left=Bitmap.of(left)))

    def _on_finished(self, _: Received) -> None:
        self.state = State.FINISHED
        self._emit(Finish(None))

"""A feature holder's machine of an inference session: directions, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model import PassiveShare
from fedmq.errors import ProtocolError, Refused
from fedmq.messages import inference as say
from fedmq.messages.array import Bitmap
from fedmq.messages.body import SessionRefuse
from fedmq.protocol.events import Finish, Received
from fedmq.protocol.inference_steps import AnswerHop
from fedmq.protocol.machine import Machine, single
from fedmq.protocol.states import PASSIVE_INFERENCE, PassiveInferenceState

__all__ = ["PassiveInference", "PassiveRows"]

State = PassiveInferenceState


@dataclass(frozen=True, slots=True, eq=False)
class PassiveRows:
    """What a feature holder can answer for: ``values`` float32 (rows, features).

    ``row_of`` finds a row by its id; None where rows are matched by position.
    """

    values: NDArray[np.float32]
    row_of: Mapping[str, int] | None


class PassiveInference(Machine):
    """Answers the hops of ``peer`` from ``share``; finishes with nothing."""

    TABLE = PASSIVE_INFERENCE
    failed_state = State.FAILED

    def __init__(self, peer: str, share: PassiveShare, rows: PassiveRows) -> None:
        super().__init__(State.READY, (peer,))
        self._share = share
        self._rows = rows
        self._row_of: NDArray[np.int64]
        self._listed = 0
        self._id_pieces = 0
        self._unknown: list[str] = []
        self._unknown_count = 0

    def _on_open(self, event: Received) -> None:
        opening = event.body
        assert isinstance(opening, say.InferenceOpen)
        if opening.model != self._share.model_id:
            self._refuse(f"there is no share of model {opening.model} here")
        elif self._rows.row_of is None and opening.rows == len(self._rows.values):
            self._row_of = np.arange(opening.rows)
            self._accept()
        elif self._rows.row_of is None:
            self._refuse(f"{len(self._rows.values)} rows are here, not {opening.rows}")
        elif opening.id_pieces == 0:
            self._refuse("rows are known by their ids here, and no ids were announced")
        else:
            self.state = State.LISTING
            self._row_of = np.full(opening.rows, -1, dtype=np.int64)
            self._id_pieces = opening.id_pieces

    def _on_ids(self, event: Received) -> None:
        said = event.body
        assert isinstance(said, say.SampleIds)
        if said.start != self._listed or said.start + len(said.ids) > len(self._row_of):
            raise ProtocolError(f"sample ids from row {said.start} on, {self._listed} was next")
        assert self._rows.row_of is not None
        for row, name in enumerate(said.ids, start=said.start):
            found = self._rows.row_of.get(name)
            if found is None:
                self._unknown_count += 1
                self._unknown.append(name)
                del self._unknown[3:]
            else:
                self._row_of[row] = found
        self._listed += len(said.ids)
        self._id_pieces -= 1
        if self._id_pieces == 0:
            self._all_listed()

    def _all_listed(self) -> None:
        if self._unknown_count:
            some = ", ".join(map(repr, self._unknown))
            self._refuse(f"{self._unknown_count} of the ids are unknown here, such as {some}")
        elif self._listed != len(self._row_of):
            raise ProtocolError(f"{self._listed} sample ids for {len(self._row_of)} rows")
        else:
            self._accept()

    def _accept(self) -> None:
        self.state = State.ANSWERING
        self._send(self.peers[0], say.InferenceAccept())

    def _refuse(self, reason: str) -> None:
        self._send(self.peers[0], SessionRefuse(reason=reason))
        self._fail(Refused(reason), but=self.peers[0])

    def _on_hop(self, event: Received) -> None:
        hop = event.body
        assert isinstance(hop, say.InferenceHop)
        rows, records = hop.rows.numpy(), hop.records.numpy()
        table = self._share.lookup_table
        if (len(rows) and int(rows.max()) >= len(self._row_of)) or (
            len(records) and int(records.max()) >= len(table)
        ):
            raise ProtocolError(f"hop {hop.hop} asks for rows or records that do not exist")
        step = AnswerHop(table, self._rows.values, records, hop.counts.numpy(), self._row_of[rows])
        self._run(single(step), partial(self._answer, hop.hop))

    def _answer(self, hop: int, left: NDArray[np.bool_]) -> None:
        self._send(self.peers[0], say.HopReply(hop=hop, left=Bitmap.of(left)))

    def _on_finished(self, _: Received) -> None:
        self.state = State.FINISHED
        self._emit(Finish(None))

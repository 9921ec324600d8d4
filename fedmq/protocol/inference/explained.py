"""How does the label holder score a file of ids, with what everybody added to each score?

A Shapley value needs the directions of a row at all splits, not those on its way alone. So nobody
walks: all owners are asked for all their directions, and the rest is the label holder's arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.lookup_table import ShownColumns
from fedmq.boosting.model.served_forest import ServedForest
from fedmq.boosting.model.share import ActiveShare
from fedmq.errors import ProtocolError
from fedmq.messages import inference
from fedmq.messages.array import Array
from fedmq.privacy.plan import single
from fedmq.protocol.events import Report
from fedmq.protocol.inference.active import ActiveInference
from fedmq.protocol.inference.computations import ExplainRows, ShownRows
from fedmq.protocol.inference.states import SCORES
from fedmq.protocol.record_columns import columns_of

__all__ = ["ExplainedInference"]

_ROWS_PER_QUESTION = 100_000  # 4 bytes each
_BITS_PER_ANSWER = 4_000_000
_DIRECTIONS_AT_ONCE = 2**25  # of rows at nodes, a byte each


class ExplainedInference(ActiveInference):
    """As :class:`ActiveInference`; finishes with scores that have contributions.

    ``texts``: what the label holder publishes of its own columns, by name.
    """

    def __init__(
        self,
        share: ActiveShare,
        values: NDArray[np.float32],
        ids: Sequence[str] | None = None,
        *,
        partial: bool = False,
        texts: Mapping[str, str] | None = None,
        base_margin: NDArray[np.float32] | None = None,
    ) -> None:
        super().__init__(share, values, ids, partial=partial, base_margin=base_margin)
        self._served = ServedForest.of(share)
        self._owners = {party: owner for owner, party in self._served.asked.items()}
        self._texts = dict(texts or {})
        self._columns: dict[str, ShownColumns] = {}
        self._parts: list[ShownRows] = []
        self._open: set[tuple[str, int]] = set()
        """Who was not heard yet about which part."""

    def _explained_records(self, peer: str) -> int:
        return len(self._served.node_of[self._owners[peer]])

    def _on_accept(self, peer: str, body: inference.InferenceAccept) -> None:
        shown = columns_of(peer, body.columns, self._explained_records(peer))
        if shown is not None:
            self._columns[peer] = shown
        super()._on_accept(peer, body)

    def _set_out(self, known: NDArray[np.bool_]) -> None:
        records = max((self._explained_records(peer) for peer in self.peers), default=1)
        most = min(
            _ROWS_PER_QUESTION,
            _BITS_PER_ANSWER // records,
            _DIRECTIONS_AT_ONCE // max(1, len(self._served.forest.owner)),
        )
        rows = np.flatnonzero(known)
        self._parts = [
            ShownRows(rows[start : start + max(1, most)], {})
            for start in range(0, len(rows), max(1, most))
        ]
        self._total = len(self._parts) * len(self.peers)
        for number, part in enumerate(self._parts):
            question = inference.InferenceRows(
                hop=number, rows=Array.of(part.rows.astype(np.uint32))
            )
            for peer in self.peers:
                self._open.add((peer, number))
                self._send(peer, question)
        self._explain_when_heard()

    def _on_reply(self, peer: str, body: inference.HopReply) -> None:
        if (peer, body.hop) not in self._open:
            raise ProtocolError(f"directions of part {body.hop} that were not asked for")
        part = self._parts[body.hop]
        if body.left.count != len(part.rows) * self._explained_records(peer):
            raise ProtocolError(f"{body.left.count} directions do not fit part {body.hop}")
        self._open.remove((peer, body.hop))
        directions = {**part.directions, self._owners[peer]: body.left}
        self._parts[body.hop] = ShownRows(part.rows, directions)
        self._emit(Report(self._total - len(self._open), self._total, "answer", {}))
        self._explain_when_heard()

    def _explain_when_heard(self) -> None:
        if not self._open:
            explaining = ExplainRows(
                self._served,
                self._values,
                tuple(self._parts),
                self._columns,
                self._texts,
                self._unknown,
                self._base_margin,
            )
            self._run(SCORES, single(explaining), self._with_scores)

"""How does the active party score a file of ids (SecureBoost, section 5 and Figure 3)?

All rows walk down all trees at once. A pair (row, tree) that meets a record of another party waits
for that party's direction; each reply moves its pairs on at once.

With reasons no pair walks. A Shapley value needs a row's directions at all splits, not only on its
way: the active party asks all owners for all their directions, and computes the rest itself
(`ExplainedInference`). From the same directions follows which change would have moved a score
(`SoughtChanges`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.served_forest import ServedForest
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import DisclosedColumns, Forest
from fedmq.errors import ProtocolError
from fedmq.messages import inference
from fedmq.messages.array import Array
from fedmq.messages.body import SessionRefuse
from fedmq.privacy.plan import single
from fedmq.protocol.events import Finish, Report, Start
from fedmq.protocol.inference.computations import Scores, ShownRows, explain_rows, sum_leaves
from fedmq.protocol.inference.sealed_active import SealedSums
from fedmq.protocol.inference.sought_changes import (
    PersonChanges,
    SoughtChanges,
    WantedChanges,
)
from fedmq.protocol.inference.states import (
    ACTIVE_INFERENCE,
    ALL_ACCEPTED,
    IS_SEALED,
    SCORES,
    SUMS,
    WALK,
    ActiveInferenceState,
)
from fedmq.protocol.machine import Machine, on, on_message
from fedmq.protocol.record_columns import columns_of
from fedmq.protocol.tree_walk import Hop, Walked, walk_on

__all__ = ["ActiveInference", "ExplainedInference"]

State = ActiveInferenceState
_IDS_PER_PIECE = 1000  # at 256 characters of up to 4 bytes each, below 1 MiB

# Of questions with reasons
_ROWS_PER_QUESTION = 100_000  # 4 bytes each
_BITS_PER_ANSWER = 4_000_000
_DIRECTIONS_AT_ONCE = 2**25  # of rows at nodes, a byte each


class ActiveInference(Machine):
    """Scores ``values`` (rows, features) with ``share``; finishes with :class:`Scores`.

    ``ids`` name the rows to the other parties; empty if rows are matched by position. With
    ``partial``, rows that another party does not know get no score; otherwise it refuses. Parties
    in ``need_not_know`` answer about such rows, too: their values there are missing.
    ``base_margin``, float32 (rows,) or (rows, classes), is the start of rows instead of the base
    score; it stays here.

    With ``sealed``, a fresh secret of 32 bytes, rows do not walk: the other parties' answers tell
    the sums of leaves alone, in fixed point; or with ``reasons`` each party's part in them.
    """

    TABLE = ACTIVE_INFERENCE
    PARTS = (SealedSums, SoughtChanges)
    failed_state = State.FAILED
    interrupted_state = State.INTERRUPTED

    def __init__(
        self,
        share: ActiveShare,
        values: NDArray[np.float32],
        ids: Sequence[str] | None = None,
        *,
        partial: bool = False,
        base_margin: NDArray[np.float32] | None = None,
        need_not_know: Collection[str] = (),
        sealed: bytes = b"",
        reasons: bool = False,
    ) -> None:
        self._forest = Forest.of(share.used_trees, share.params)
        super().__init__(State.READY, share.asked)
        self._share = share
        self._values = values
        self._ids = ids
        self._partial = partial
        self._base_margin = base_margin
        self._need_not_know = frozenset(need_not_know)
        self._accepted: set[str] = set()
        self._unknown: dict[str, NDArray[np.bool_]] = {}
        self._nodes = np.tile(self._forest.roots, len(values))
        self._hops: dict[tuple[str, int], Hop] = {}
        self._hops_sent = 0
        self._walking = 0
        self._arrived = 0
        self._total = 0
        self._sealed: SealedSums | None = None
        self._sought: SoughtChanges | None = None
        if sealed and self.peers:
            self._sealed = SealedSums(self, share, values, sealed, reasons)
            self._attach(self._sealed)

    def check(self) -> None:
        if self.state is State.WALKING:
            waiting = [hop.pairs for hop in self._hops.values()]
            assert len(np.unique(np.concatenate([np.empty(0), *waiting]))) == sum(map(len, waiting))

    @on(Start)
    def _on_start(self, _: Start) -> None:
        if self._sealed is None:
            self._invite()
            return
        self._move(IS_SEALED)
        self._sealed.prepare(self._invite)

    def _invite(self) -> None:
        ids = self._ids or ()
        pieces = range(0, len(ids), _IDS_PER_PIECE)
        for peer in self.peers:
            opening = inference.InferenceOpen(
                model=self._share.model_id,
                rows=len(self._values),
                id_pieces=len(pieces),
                partial=self._partial,
                explained_records=self._explained_records(peer),
                sealed=None if self._sealed is None else self._sealed.terms(peer),
                training=self._share.training,
                asks_changes=self._sought is not None,
            )
            self._send(peer, opening)
            for start in pieces:
                names = tuple(ids[start : start + _IDS_PER_PIECE])
                self._send(peer, inference.SampleIds(start=start, ids=names))
        self._set_out_when_accepted()

    def _explained_records(self, peer: str) -> int:
        """The number of records of which ``peer`` must give all directions."""
        return 0

    @on_message(inference.InferenceAccept)
    def _on_accept(self, peer: str, body: inference.InferenceAccept) -> None:
        if peer in self._accepted:
            raise ProtocolError("the session was accepted twice")
        if body.unknown_rows.count:
            if not self._partial or body.unknown_rows.count != len(self._values):
                raise ProtocolError(f"unrequested unknown rows among {body.unknown_rows.count}")
            self._unknown[peer] = body.unknown_rows.numpy()
        self._accepted.add(peer)
        self._set_out_when_accepted()

    @on_message(SessionRefuse)
    def _on_refuse(self, peer: str, body: SessionRefuse) -> None:
        self._refused(peer, body)

    def _set_out_when_accepted(self) -> None:
        if len(self._accepted) < len(self.peers):
            return
        unknown = [np.zeros(len(self._values), np.bool_), *self._blank.values()]
        known = ~np.any(unknown, axis=0)
        if self._sealed is not None:
            self._move(SUMS)
            self._sealed.begin(known, self._with_sums)
            return
        self._move(ALL_ACCEPTED)
        self._set_out(known)

    def _with_sums(self, sums: NDArray[np.float64]) -> None:
        assert self._sealed is not None
        self._sealed.scores(sums, self._base_margin, self._with_scores)

    @property
    def _blank(self) -> dict[str, NDArray[np.bool_]]:
        """By party, the rows that get no score because it does not know them."""
        return {
            party: rows for party, rows in self._unknown.items() if party not in self._need_not_know
        }

    def _set_out(self, known: NDArray[np.bool_]) -> None:
        """Begin with the rows that get a score; bool (rows,)."""
        trees = len(self._forest.roots)
        pairs = np.flatnonzero(np.repeat(known, trees)).astype(np.int64)
        self._total = len(pairs)
        self._walk(pairs, None)

    def _walk(self, pairs: NDArray[np.int64], left: NDArray[np.bool_] | None) -> None:
        self._walking += 1
        table = self._share.lookup_table
        computation = walk_on.bind(
            self._forest, table, self._values, pairs, self._nodes[pairs], left
        )
        self._run(WALK, single(computation), self._with_walked)

    def _with_walked(self, walked: Walked) -> None:
        self._walking -= 1
        self._nodes[walked.pairs] = walked.nodes
        self._arrived += len(walked.pairs) - sum(len(hop.pairs) for hop in walked.hops)
        for hop in walked.hops:
            peer = self._share.parties[hop.owner]
            self._hops_sent += 1
            self._hops[peer, self._hops_sent] = hop
            self._send(peer, hop.body(self._hops_sent))
        self._emit(Report(self._arrived, self._total, "leaf", {}))
        if not self._walking and not self._hops:
            leaves = self._nodes.reshape(len(self._values), -1)
            computation = sum_leaves.bind(
                self._forest, leaves, self._share.params, self._blank, self._base_margin
            )
            self._run(SCORES, single(computation), self._with_scores)

    @on_message(inference.HopReply)
    def _on_reply(self, peer: str, body: inference.HopReply) -> None:
        hop = self._hops.get((peer, body.hop))
        if hop is None or body.left.count != len(hop.pairs):
            raise ProtocolError(f"unrequested directions for hop {body.hop}")
        del self._hops[peer, body.hop]
        self._walk(hop.pairs, body.left.numpy())

    def _with_scores(self, scores: Scores) -> None:
        self._finish(replace(scores, unknown=self._unknown))

    def _finish(self, result: Scores | PersonChanges) -> None:
        for peer in self.peers:
            self._send(peer, inference.InferenceFinished())
        self._emit(Finish(result))


class ExplainedInference(ActiveInference):
    """Like :class:`ActiveInference`; finishes with scores that have contributions.

    ``texts``: the active party's published texts about its own columns, by name. With ``wanted``
    there is one row, and the result are :class:`PersonChanges`.
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
        need_not_know: Collection[str] = (),
        wanted: WantedChanges | None = None,
    ) -> None:
        super().__init__(
            share,
            values,
            ids,
            partial=partial,
            base_margin=base_margin,
            need_not_know=need_not_know,
        )
        self._served = ServedForest.of(share)
        self._owners = {party: owner for owner, party in self._served.asked.items()}
        self._texts = dict(texts or {})
        self._columns: dict[str, DisclosedColumns] = {}
        self._parts: list[ShownRows] = []
        self._open: set[tuple[str, int]] = set()
        """The owners and parts without an answer yet."""
        if wanted is not None:
            self._sought = SoughtChanges(self, self._served, values, wanted)
            self._attach(self._sought)

    def _explained_records(self, peer: str) -> int:
        return len(self._served.node_of[self._owners[peer]])

    def _on_accept(self, peer: str, body: inference.InferenceAccept) -> None:
        shown = columns_of(peer, body.columns, self._explained_records(peer))
        if shown is not None:
            self._columns[peer] = shown
        if self._sought is not None:
            self._sought.offer(self._owners[peer], body.offered)
        elif body.offered is not None:
            raise ProtocolError("changes are offered that nobody asked for")
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
            raise ProtocolError(f"unrequested directions of part {body.hop}")
        part = self._parts[body.hop]
        if body.left.count != len(part.rows) * self._explained_records(peer):
            raise ProtocolError(f"{body.left.count} directions do not fit part {body.hop}")
        self._open.remove((peer, body.hop))
        directions = {**part.directions, self._owners[peer]: body.left}
        self._parts[body.hop] = ShownRows(part.rows, directions)
        self._emit(Report(self._total - len(self._open), self._total, "answer", {}))
        self._explain_when_heard()

    def _explain_when_heard(self) -> None:
        if self._sought is not None and not self._open:
            self._sought.seek(self._parts[0].directions, self._finish)
        elif not self._open:
            explaining = explain_rows.bind(
                self._served,
                self._values,
                tuple(self._parts),
                self._columns,
                self._texts,
                self._blank,
                self._base_margin,
            )
            self._run(SCORES, single(explaining), self._with_scores)

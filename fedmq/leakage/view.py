"""A recorded training as one party saw it: who stood where, and what the engines exchanged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.splits import ROOT, children
from fedmq.errors import DataError
from fedmq.messages import training
from fedmq.messages.array import unpack_payload
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.party.sessions.observe import Recording
from fedmq.privacy.registry import ENGINES

__all__ = ["Exchanged", "SessionView", "TreeView"]


@dataclass(slots=True)
class Exchanged:
    """What the halves of an engine sent about one node: matrices by name, in pieces of rows."""

    asked: dict[str, list[NDArray[Any]]] = field(default_factory=lambda: defaultdict(list))
    answered: dict[str, list[NDArray[Any]]] = field(default_factory=lambda: defaultdict(list))

    def matrices(self, asked: str, answered: str) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """The matrix ``asked`` and the one ``answered``, if both were sent: all their rows."""
        if asked not in self.asked or answered not in self.answered:
            return None
        return np.concatenate(self.asked[asked]), np.concatenate(self.answered[answered])


@dataclass(slots=True)
class TreeView:
    """One tree: ``spaces`` holds the rows of each node that is known and not split further.

    ``parts`` are all partitions seen, by (owner, node): the node's rows and who went left; the
    owner is empty where the party does not know it. ``carried`` and ``broadcasts`` are the rows and
    values of the gradient broadcast, piece by piece.
    """

    rows: int
    carried: list[NDArray[np.uint32]] = field(default_factory=list)
    broadcasts: list[dict[str, Any]] = field(default_factory=list)
    spaces: dict[int, NDArray[np.int32]] = field(default_factory=dict)
    inner: dict[int, NDArray[np.int32]] = field(default_factory=dict)
    parts: dict[tuple[str, int], tuple[NDArray[np.int32], NDArray[np.bool_]]] = field(
        default_factory=dict
    )
    exchanged: dict[tuple[str, int], Exchanged] = field(
        default_factory=lambda: defaultdict(Exchanged)
    )

    def knows(self, node: int) -> bool:
        """Whether the rows of ``node`` are known."""
        return node in self.inner or node in self.spaces

    def carrying(self, node: int) -> NDArray[np.int32]:
        """The rows of ``node`` that carry gradients, ascending."""
        mask = np.zeros(self.rows, dtype=np.bool_)
        mask[np.concatenate([*self.carried, np.empty(0, np.uint32)]).astype(np.intp)] = True
        rows = self.inner[node] if node in self.inner else self.spaces[node]
        return rows[mask[rows]]


class SessionView:
    """What ``recording`` shows of a training.

    Raises:
        DataError: it holds no training, or an incomplete one.
    """

    def __init__(self, recording: Recording) -> None:
        self.party = recording.party
        self.trees: dict[int, TreeView] = {}
        self.smallest_cells: dict[str, int] = {}
        """Cells with fewer rows of a node were merged, by the party that announced it."""
        self.by_sets: set[str] = set()
        """The parties some of whose columns are split by sets of categories."""
        self._oblivious: set[tuple[int, int]] = set()
        self._decoys: set[tuple[str, int, int]] = set()
        for envelope in recording.envelopes:
            if isinstance(envelope.body, training.TrainingOpen):
                self.terms = envelope.body
                self.active = envelope.header.sender
                break
        else:
            raise DataError(f"the recording of {recording.party} holds no training")
        readers: dict[type[Body], Callable[[Envelope, Any], None]] = {
            training.SessionAccept: self._accepted,
            training.TreeStarted: self._started,
            training.GradientBroadcast: self._broadcast,
            training.QueryPiece: self._asked,
            training.HistogramReply: self._answered,
            training.DirectionsQuery: self._asked_obliviously,
            training.SplitDecision: self._decided,
            training.SplitOutcome: self._outcome,
            training.NodeAssignment: self._assignment,
        }
        for envelope in recording.envelopes:
            reader = readers.get(type(envelope.body))
            if reader is not None:
                reader(envelope, envelope.body)

    @property
    def is_active(self) -> bool:
        """Whether the party that recorded holds the label."""
        return self.party == self.active

    def _accepted(self, envelope: Envelope, body: training.SessionAccept) -> None:
        self.smallest_cells[envelope.header.sender] = body.smallest_cell
        if body.by_sets:
            self.by_sets.add(envelope.header.sender)

    def _started(self, _: Envelope, body: training.TreeStarted) -> None:
        if body.tree not in self.trees:
            everyone = np.arange(self.terms.rows, dtype=np.int32)
            tree = TreeView(self.terms.rows, spaces={ROOT: everyone})
            if ENGINES[self.terms.engine].hides_rows:  # no broadcast says which carry gradients
                learning = np.flatnonzero(~self.terms.evaluation.numpy())
                tree.carried.append(learning.astype(np.uint32))
            self.trees[body.tree] = tree

    def _broadcast(self, envelope: Envelope, body: training.GradientBroadcast) -> None:
        tree = self.trees[body.tree]
        if len(tree.carried) > body.piece:
            return  # the same, sent to another peer
        tree.carried.append(body.rows.numpy())
        tree.broadcasts.append(unpack_payload(body.payload))

    def _asked(self, envelope: Envelope, body: training.QueryPiece) -> None:
        exchanged = self.trees[body.tree].exchanged[envelope.header.recipient, body.node]
        _collect(exchanged.asked, unpack_payload(body.payload))

    def _answered(self, envelope: Envelope, body: training.HistogramReply) -> None:
        exchanged = self.trees[body.tree].exchanged[envelope.header.sender, body.node]
        _collect(exchanged.answered, unpack_payload(body.payload))

    def _asked_obliviously(self, _: Envelope, body: training.DirectionsQuery) -> None:
        self._oblivious.add((body.tree, body.node))

    def _decided(self, envelope: Envelope, body: training.SplitDecision) -> None:
        if body.is_decoy:
            self._decoys.add((envelope.header.recipient, body.tree, body.node))

    def _outcome(self, envelope: Envelope, body: training.SplitOutcome) -> None:
        if (envelope.header.sender, body.tree, body.node) in self._decoys:
            return
        if (body.tree, body.node) in self._oblivious:
            return  # what is recorded takes the label holder's secrets to read
        if not self.is_active and ENGINES[self.terms.engine].hides_rows:
            return  # of all rows: the party does not know which stand in the node
        self._divide(body.tree, body.node, body.left.numpy(), envelope.header.sender)

    def _assignment(self, envelope: Envelope, body: training.NodeAssignment) -> None:
        self._divide(body.tree, body.node, body.left.numpy(), "")

    def _divide(self, number: int, node: int, left: NDArray[np.bool_], owner: str) -> None:
        tree = self.trees[number]
        rows = tree.spaces.pop(node, None)
        if rows is None:
            return  # known already: it also went to another peer, or came from the owner
        if len(left) != len(rows):
            left = left[rows]  # over all rows, of an engine that hides them
        tree.inner[node] = rows
        tree.parts[owner, node] = (rows, left)
        tree.spaces |= zip(children(node), (rows[left], rows[~left]), strict=True)


def _collect(into: dict[str, list[NDArray[Any]]], payload: dict[str, Any]) -> None:
    for name, value in payload.items():
        if isinstance(value, np.ndarray):
            into[name].append(value)

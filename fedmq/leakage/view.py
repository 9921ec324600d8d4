"""A recorded training as one party saw it: rows of nodes, and the engines' messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray
from phe import EncryptedNumber, PaillierPrivateKey

from fedmq.boosting.splits import ROOT, children
from fedmq.errors import ConfigError, DataError
from fedmq.messages import training
from fedmq.messages.array import unpack_payload
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.party.sessions.observe import Recording
from fedmq.privacy.engines.paillier import Paillier
from fedmq.privacy.homomorphic.paillier import PublicKey
from fedmq.privacy.homomorphic.residues import from_wire
from fedmq.privacy.registry import ENGINES

__all__ = ["EncryptedGradients", "Exchanged", "SessionView", "TreeView", "encrypted_gradients"]


@dataclass(slots=True)
class Exchanged:
    """The engine's messages about one node: matrices by name, in pieces of rows."""

    asked: dict[str, list[NDArray[Any]]] = field(default_factory=lambda: defaultdict(list))
    answered: dict[str, list[NDArray[Any]]] = field(default_factory=lambda: defaultdict(list))

    def matrices(self, asked: str, answered: str) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """All rows of the matrices ``asked`` and ``answered``, if both were sent."""
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

    def place(self, leaves: NDArray[np.int64]) -> None:
        """Add the rows of nodes that the recording does not tell, by each row's leaf (rows,)."""
        found: defaultdict[int, list[NDArray[np.intp]]] = defaultdict(list)
        rows, above = np.arange(len(leaves)), leaves
        while len(rows):
            for node in np.unique(above).tolist():
                found[node].append(rows[above == node])
            rows, above = rows[above > ROOT], above[above > ROOT] // 2
        for node, parts in found.items():
            if not self.knows(node):
                self.inner[node] = np.sort(np.concatenate(parts)).astype(np.int32)

    def carrying(self, node: int) -> NDArray[np.int32]:
        """The rows of ``node`` that carry gradients, ascending."""
        mask = np.zeros(self.rows, dtype=np.bool_)
        mask[np.concatenate([*self.carried, np.empty(0, np.uint32)]).astype(np.intp)] = True
        rows = self.inner[node] if node in self.inner else self.spaces[node]
        return rows[mask[rows]]


class SessionView:
    """The view of a training in ``recording``.

    Raises:
        DataError: it holds no complete training.
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
            if ENGINES[
                self.terms.engine
            ].traits.hides_rows:  # no broadcast names the rows with gradients
                learning = np.flatnonzero(~self.terms.evaluation.numpy())
                tree.carried.append(learning.astype(np.uint32))
            self.trees[body.tree] = tree

    def _broadcast(self, envelope: Envelope, body: training.GradientBroadcast) -> None:
        tree = self.trees[body.tree]
        if len(tree.carried) > body.piece:
            return  # the same, sent to another peer
        tree.carried.append(body.numbers())
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
            return  # reading the recording needs the active party's secrets
        if not self.is_active and ENGINES[self.terms.engine].traits.hides_rows:
            return  # of all rows: the party does not know the node's rows
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


@dataclass(frozen=True, slots=True, eq=False)
class EncryptedGradients:
    """What one ``tree`` disclosed: ``rows`` uint32 (n,), and as many ``numbers`` of phe.

    A number encrypts ``g * 2**h_bits + h``, with g and h in the tree's fixed point.
    """

    tree: int
    rows: NDArray[np.uint32]
    numbers: tuple[EncryptedNumber, ...]
    h_bits: int
    slot_bits: int = 0
    shared: int = 1
    """Rows in a number, each in a slot of ``slot_bits``; more than one with `gradient_bits`."""

    def decrypted(self, key: PaillierPrivateKey) -> NDArray[np.int64]:
        """g and h of each row in fixed point, decrypted by phe: int64 (n, 2).

        Raises:
            ConfigError: the numbers are under another key.
        """
        if any(number.public_key != key.public_key for number in self.numbers):
            raise ConfigError("key: the gradients are encrypted under another one")
        plaintexts = [key.decrypt(number) for number in self.numbers]
        if self.shared > 1:
            plaintexts = [value for packed in plaintexts for value in self._slots(packed)][
                : len(self.rows)
            ]
        pairs = [(value >> self.h_bits, value % (1 << self.h_bits)) for value in plaintexts]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)

    def _slots(self, packed: int) -> list[int]:
        """The rows of one plaintext: balanced digits, the lowest first."""
        half = 1 << (self.slot_bits - 1)
        lifted = packed + sum(half << place * self.slot_bits for place in range(self.shared))
        mask = (1 << self.slot_bits) - 1
        return [(lifted >> place * self.slot_bits & mask) - half for place in range(self.shared)]


def encrypted_gradients(recording: Recording | str | Path) -> list[EncryptedGradients]:
    """The broadcasts of a training under engine ``paillier``, one for each tree that had one.

    ``recording``: of one party, or its file, as for ``fedmq.audit``.

    Raises:
        DataError: it holds no training, or one under another engine, or of vector leaves.
    """
    if not isinstance(recording, Recording):
        recording = Recording.read(Path(recording))
    view = SessionView(recording)
    if view.terms.engine != Paillier.name:
        raise DataError(
            f"the recording of {view.party} holds a training under {view.terms.engine}; only "
            f"{Paillier.name} sends what phe can read"
        )
    if view.terms.outputs > 1:
        raise DataError(
            f"the recording of {view.party} holds a training of vector leaves, whose numbers have "
            f"the g and h of {view.terms.outputs} outputs; one g and h a row can be read"
        )
    public = unpack_payload(view.terms.public)
    n, noise = (mpz.from_bytes(public[name].tobytes(), "little") for name in ("n", "noise"))
    key = PublicKey(n, noise, int(public["noise_bits"]))
    return [
        _of_tree(number, tree, key)
        for number, tree in sorted(view.trees.items())
        if tree.broadcasts
    ]


def _of_tree(number: int, tree: TreeView, key: PublicKey) -> EncryptedGradients:
    ciphertexts = np.concatenate([piece["ciphertexts"] for piece in tree.broadcasts])
    return EncryptedGradients(
        number,
        np.concatenate(tree.carried),
        tuple(key.to_phe_numbers(from_wire(ciphertexts, key.modulus))),
        int(tree.broadcasts[0]["h"]),
        int(tree.broadcasts[0]["slot"]),
        int(tree.broadcasts[0].get("rows", 1)),
    )

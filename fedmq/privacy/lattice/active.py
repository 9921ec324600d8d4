"""The label holder's half of the lattice engine: it asks about nodes in cipher, and reads sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gradients import Gradients
from fedmq.errors import MessageError
from fedmq.privacy.engine import ActiveHalf, Answer, AskedNode, BroadcastPiece, Sums
from fedmq.privacy.lattice.decryption import DecryptAnswer
from fedmq.privacy.lattice.hint import JoinHints
from fedmq.privacy.lattice.layout import Layout
from fedmq.privacy.lattice.public_elements import PublicElements, shares_of
from fedmq.privacy.lattice.query import EncryptNode
from fedmq.privacy.lattice.sampling import fresh_seed
from fedmq.privacy.plan import Compute, Exchange, Plan, Values

__all__ = ["LatticeActive"]


@dataclass(frozen=True, slots=True, eq=False)
class _Peer:
    """What a peer sent before the first tree: its hints, uint32 (candidates, limbs, N)."""

    hints: NDArray[np.uint32]


class LatticeActive(ActiveHalf):
    """See `fedmq.privacy.engines.lattice.Lattice` for the settings."""

    def __init__(self, hint_bytes: int, parallelism: int) -> None:
        self._hint_bytes = hint_bytes
        self._parallelism = parallelism
        self._public_seed = fresh_seed()
        self._layout: Layout
        self._public: PublicElements | None = None
        self._peers: dict[str, _Peer] = {}
        self._gradients: Gradients

    def open(self) -> Plan[Values]:
        return {
            "seed": np.frombuffer(self._public_seed, np.uint8),
            "hint_bytes": self._hint_bytes,
        }
        yield

    def setup(self, peer: str, pieces: Sequence[Values]) -> Plan[None]:
        rows, candidates = (pieces[0].get(key) for key in ("rows", "candidates"))
        if not isinstance(rows, int) or not isinstance(candidates, int):
            raise MessageError(f"{peer} does not say how many rows and candidates it has")
        layout = Layout(rows)
        if self._public is None:
            self._layout = layout
            parts = yield Compute(shares_of(self._public_seed, layout, self._parallelism))
            self._public = PublicElements.joined(parts)
        elif layout != self._layout:
            raise MessageError(f"{peer} has {rows} rows, another party {self._layout.rows}")
        [hints] = yield Compute([JoinHints(pieces[1:], layout)])
        if len(hints) != candidates:
            raise MessageError(f"{peer} sent hints for {len(hints)} of {candidates} candidates")
        self._peers[peer] = _Peer(hints)

    def broadcast(self, gradients: Gradients) -> Sequence[Plan[BroadcastPiece]]:
        self._gradients = gradients
        return ()

    def ask(self, peer: str, asked: AskedNode) -> Plan[Answer]:
        assert self._public is not None
        seed = fresh_seed()
        [query] = yield Compute(
            [EncryptNode(self._gradients.pairs, asked.rows, self._public, self._layout, seed)]
        )
        pieces = yield Exchange(query)
        step = DecryptAnswer(pieces, self._peers[peer].hints, self._layout, seed)
        [left] = yield Compute([step])
        return Sums(left)

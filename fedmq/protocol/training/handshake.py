"""Who takes part in a training, and from which tree on?"""

from __future__ import annotations

from collections.abc import Sequence

from fedmq.boosting.gradients import most_value_bits
from fedmq.boosting.params import TrainParams
from fedmq.errors import ProtocolError
from fedmq.messages.array import Bitmap, pack_payload
from fedmq.messages.training import SessionAccept, TrainingOpen
from fedmq.privacy.engine import Engine
from fedmq.privacy.plan import Values
from fedmq.protocol.training.tables import ActiveTable

__all__ = ["Handshake", "opening_of"]


class Handshake:
    """The acceptances of ``peers``, with the pieces of their engines' setup."""

    def __init__(self, peers: Sequence[str]) -> None:
        self._peers = tuple(peers)
        self._announced: dict[str, int] = {}
        self._pieces: dict[str, list[Values]] = {}
        self._trees: dict[str, int] = {}
        self._candidates: dict[str, int] = {}
        self._signed: set[str] = set()
        self._ready: set[str] = set()

    def accept(self, peer: str, body: SessionAccept) -> None:
        """``peer`` takes part; ProtocolError if it does already."""
        if peer in self._announced:
            raise ProtocolError("the session was accepted twice")
        self._announced[peer] = body.setup_pieces
        self._trees[peer] = body.trees
        self._candidates[peer] = body.candidates
        if body.signed:
            self._signed.add(peer)
        self._pieces[peer] = []

    def add(self, peer: str, piece: Values) -> None:
        """A piece of the setup of ``peer``; ProtocolError if it was not announced."""
        pieces = self._pieces.get(peer)
        if pieces is None or len(pieces) >= self._announced[peer]:
            raise ProtocolError("an engine setup piece that was not announced")
        pieces.append(piece)

    def setup(self, peer: str) -> Sequence[Values] | None:
        """The setup of ``peer``, None until all of it is there."""
        pieces = self._pieces[peer]
        return pieces if len(pieces) == self._announced[peer] else None

    def candidates(self, peer: str) -> int:
        """How many candidates of ``peer`` a node has at most."""
        return self._candidates[peer]

    @property
    def signed(self) -> tuple[str, ...]:
        """The peers that show signs with their candidates."""
        return tuple(peer for peer in self._peers if peer in self._signed)

    def mark_ready(self, peer: str) -> None:
        """The engine has taken the setup of ``peer``."""
        self._ready.add(peer)

    @property
    def is_complete(self) -> bool:
        """Whether every peer is ready."""
        return len(self._ready) == len(self._peers)

    def common_trees(self, own: int, alone: int) -> int:
        """The trees that all hold: ``own`` at the active party, which grew the first ``alone``."""
        return min([own, *(max(trees, alone) for trees in self._trees.values())])


def opening_of(
    model: str, table: ActiveTable, params: TrainParams, engine: Engine, public: Values
) -> TrainingOpen:
    """The terms on which a training of ``model`` is offered to every passive party."""
    return TrainingOpen(
        model=model,
        rows=len(table.label),
        alignment=table.alignment,
        alignment_name=table.alignment_name,
        evaluation=Bitmap.of(table.evaluation),
        engine=engine.name,
        public=pack_payload(public),
        trees=params.num_boost_round,
        active_only_trees=params.active_only_trees,
        max_depth=params.max_depth,
        max_bin=params.max_bin,
        colsample_bytree=params.colsample_bytree,
        seed=params.seed,
        value_bits=most_value_bits(params),
        colsample_bylevel=params.colsample_bylevel,
        colsample_bynode=params.colsample_bynode,
    )

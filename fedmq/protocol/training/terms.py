"""What is a training about, and what has each passive party accepted?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from fedmq.boosting.gradients import most_value_bits
from fedmq.boosting.model.share import WITHHELD_NOTHING, Withheld
from fedmq.boosting.params import TrainParams
from fedmq.errors import Inconsistent, MessageError, ProtocolError
from fedmq.messages.array import Bitmap, Payload, pack_payload, payload_bytes, unpack_payload
from fedmq.messages.training import SessionAccept, TrainingOpen
from fedmq.privacy.engine import Engine, SizeLimit
from fedmq.privacy.plan import Values
from fedmq.protocol.training.columns import ColumnConstraints
from fedmq.protocol.training.tables import ActiveTable

__all__ = ["Acceptances", "TrainingTerms"]


@dataclass(frozen=True, slots=True)
class TrainingTerms:
    """What a training of ``party`` with ``peers`` is about, from its first message to its last.

    Made once, in the constructor of the machine, so that a node or a message needs one attribute.
    """

    model: str
    party: str
    peers: tuple[str, ...]
    table: ActiveTable
    params: TrainParams
    engine: Engine
    constraints: ColumnConstraints
    parties: tuple[str, ...]
    """All, in the order that decides ties; the active party is number 0."""
    owners: Mapping[str, int]
    """The numbers of all parties in that order."""
    trees: int
    """So many at most, of all models that grow."""
    trees_alone: int
    """So many first trees are the active party's alone."""
    hides_rows: bool
    hides_sums: bool
    category_sets: bool
    """Whether peers split columns of categories by sets, where these agree."""
    decoys: bool
    """Whether nobody who counts messages may learn whose columns split."""

    @classmethod
    def of(
        cls,
        model: str,
        party: str,
        peers: Sequence[str],
        table: ActiveTable,
        params: TrainParams,
        engine: Engine,
        *,
        category_sets: bool,
        decoys: bool,
    ) -> Self:
        """The terms of ``model``. Raises `ConfigError` where they do not fit together."""
        engine.check(params)
        table.check_engine(engine)
        parties = (party, *peers)
        return cls(
            model,
            party,
            tuple(peers),
            table,
            params,
            engine,
            ColumnConstraints(party, peers, table, params, engine),
            parties,
            {name: number for number, name in enumerate(parties)},
            params.total_trees * table.turns,
            params.trees_alone * table.turns,
            engine.traits.hides_rows,
            engine.hides_sums,
            category_sets and params.max_cat_to_onehot is not None,
            decoys,
        )

    def opening(self, public: Values) -> TrainingOpen:
        """What every passive party is offered; ``public`` is what the engine makes known."""
        params, table, peers = self.params, self.table, self.peers
        by_sets = params.max_cat_to_onehot if self.category_sets else None
        return TrainingOpen(
            model=self.model,
            rows=len(table.label),
            alignment=table.alignment,
            alignment_name=table.alignment_name,
            evaluation=Bitmap.of(table.evaluation),
            engine=self.engine.name,
            sums="hidden" if self.hides_sums else "shown",
            chain=peers if self.hides_sums and len(peers) > 1 else (),
            public=pack_payload(public),
            trees=self.trees,
            active_only_trees=self.trees_alone,
            max_depth=params.depth_limit,
            max_leaves=params.leaf_limit,
            max_bin=params.max_bin,
            colsample_bytree=params.colsample_bytree,
            seed=params.seed,
            value_bits=most_value_bits(params),
            outputs=params.vector_outputs,
            colsample_bylevel=params.colsample_bylevel,
            colsample_bynode=params.colsample_bynode,
            folds=table.turns,
            max_cat_to_onehot=by_sets or 0,
            decoys=self.decoys,
        )


class Acceptances:
    """What ``peers`` have accepted, with the pieces of their engines' setup."""

    def __init__(self, peers: Sequence[str]) -> None:
        self._peers = tuple(peers)
        self.of: dict[str, SessionAccept] = {}
        """Each peer's; all of them once `is_complete`."""
        self._largest: dict[str, SizeLimit] = {}
        self._bytes: Counter[str] = Counter()
        self._pieces: dict[str, list[Values]] = {}
        self._ready: set[str] = set()

    def add(
        self, peer: str, body: SessionAccept, largest_setup: Callable[[int], SizeLimit]
    ) -> None:
        """``peer`` takes part; ``largest_setup`` is what so many candidates need at most.

        Raises:
            ProtocolError: it said so before.
            Inconsistent: it announces a longer setup than its candidates take.
        """
        if peer in self.of:
            raise ProtocolError("the session was accepted twice")
        try:
            self._largest[peer] = largest_setup(body.candidates)
        except MessageError as error:
            raise Inconsistent(peer, str(error), {"candidates": body.candidates}) from None
        self._check_setup(peer, SizeLimit(body.setup_pieces, 0))
        self.of[peer] = body
        self._pieces[peer] = []

    def add_setup(self, peer: str, payload: Payload) -> None:
        """A piece of the setup of ``peer``.

        Raises:
            ProtocolError: it was not announced.
            Inconsistent: all pieces together are longer than its candidates take.
        """
        pieces = self._pieces.get(peer)
        if pieces is None or len(pieces) >= self.of[peer].setup_pieces:
            raise ProtocolError("an engine setup piece that was not announced")
        self._bytes[peer] += payload_bytes(payload)
        self._check_setup(peer, SizeLimit(self.of[peer].setup_pieces, self._bytes[peer]))
        pieces.append(unpack_payload(payload))

    def _check_setup(self, peer: str, sent: SizeLimit) -> None:
        largest = self._largest[peer]
        if sent.pieces > largest.pieces or sent.bytes > largest.bytes:
            raise Inconsistent(
                peer,
                f"a setup of {sent.pieces} pieces and {sent.bytes:,} bytes or more, its candidates "
                f"take {largest.pieces} and {largest.bytes:,}",
                {"pieces": sent.pieces, "bytes": sent.bytes},
            )

    def setup(self, peer: str) -> Sequence[Values] | None:
        """The setup of ``peer``, None until all of it is there."""
        pieces = self._pieces[peer]
        return pieces if len(pieces) == self.of[peer].setup_pieces else None

    def mark_ready(self, peer: str) -> None:
        """The engine has taken the setup of ``peer``."""
        self._ready.add(peer)

    @property
    def is_complete(self) -> bool:
        """Whether every peer is ready."""
        return len(self._ready) == len(self._peers)

    def common_trees(self, own: int, alone: int) -> int:
        """The trees that all hold: ``own`` at the active party, which grew the first ``alone``."""
        return min([own, *(max(body.trees, alone) for body in self.of.values())])

    @property
    def signed(self) -> tuple[str, ...]:
        """The peers that show signs with their candidates."""
        return tuple(peer for peer in self._peers if self.of[peer].signed)

    @property
    def by_sets(self) -> tuple[str, ...]:
        """The peers some of whose columns are split by sets of categories."""
        return tuple(peer for peer in self._peers if self.of[peer].by_sets)

    @property
    def withheld(self) -> dict[str, Withheld]:
        """What peers do not show sums of, by their names; without those that show all."""
        held = {
            peer: Withheld(smallest_node=body.smallest_node, smallest_cell=body.smallest_cell)
            for peer in self._peers
            if (body := self.of.get(peer)) is not None
        }
        return {peer: withheld for peer, withheld in held.items() if withheld != WITHHELD_NOTHING}

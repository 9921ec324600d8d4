"""Who takes part in a training, and from which tree on?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.gradients import most_value_bits
from fedmq.boosting.model.share import WITHHELD_NOTHING, Withheld
from fedmq.boosting.params import TrainParams
from fedmq.errors import Inconsistent, MessageError, ProtocolError
from fedmq.messages.array import Bitmap, Payload, pack_payload, payload_bytes, unpack_payload
from fedmq.messages.training import SessionAccept, TrainingOpen
from fedmq.privacy.engine import ActiveHalf, Engine, Extent
from fedmq.privacy.plan import Plan, Values, single
from fedmq.protocol.training.columns import category_places
from fedmq.protocol.training.computations import BinTable
from fedmq.protocol.training.fold_models import FoldModels
from fedmq.protocol.training.model_builder import ModelBuilder
from fedmq.protocol.training.tables import ActiveTable

__all__ = ["Handshake", "keyed", "opening_of"]


class Handshake:
    """The acceptances of ``peers``, with the pieces of their engines' setup."""

    def __init__(self, peers: Sequence[str]) -> None:
        self._peers = tuple(peers)
        self._accepted: dict[str, SessionAccept] = {}
        self._largest: dict[str, Extent] = {}
        self._bytes: Counter[str] = Counter()
        self._pieces: dict[str, list[Values]] = {}
        self._ready: set[str] = set()

    def accept(
        self, peer: str, body: SessionAccept, largest_setup: Callable[[int], Extent]
    ) -> None:
        """``peer`` takes part; ``largest_setup`` is what so many candidates need at most.

        Raises:
            ProtocolError: it said so before.
            Inconsistent: it announces a longer setup than its candidates take.
        """
        if peer in self._accepted:
            raise ProtocolError("the session was accepted twice")
        try:
            self._largest[peer] = largest_setup(body.candidates)
        except MessageError as error:
            raise Inconsistent(peer, str(error), {"candidates": body.candidates}) from None
        self._check_setup(peer, Extent(body.setup_pieces, 0))
        self._accepted[peer] = body
        self._pieces[peer] = []

    def add(self, peer: str, payload: Payload) -> None:
        """A piece of the setup of ``peer``.

        Raises:
            ProtocolError: it was not announced.
            Inconsistent: all pieces together are longer than its candidates take.
        """
        pieces = self._pieces.get(peer)
        if pieces is None or len(pieces) >= self._accepted[peer].setup_pieces:
            raise ProtocolError("an engine setup piece that was not announced")
        self._bytes[peer] += payload_bytes(payload)
        self._check_setup(peer, Extent(self._accepted[peer].setup_pieces, self._bytes[peer]))
        pieces.append(unpack_payload(payload))

    def _check_setup(self, peer: str, sent: Extent) -> None:
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
        return pieces if len(pieces) == self._accepted[peer].setup_pieces else None

    def candidates(self, peer: str) -> int:
        """How many candidates of ``peer`` a node has at most."""
        return self._accepted[peer].candidates

    def smallest_node(self, peer: str) -> int:
        """From how many rows on ``peer`` makes offers for a node."""
        return self._accepted[peer].smallest_node

    @property
    def withheld(self) -> dict[str, Withheld]:
        """What peers do not show sums of, by their names; without those that show all."""
        held = {
            peer: Withheld(smallest_node=body.smallest_node, smallest_cell=body.smallest_cell)
            for peer in self._peers
            if (body := self._accepted.get(peer)) is not None
        }
        return {peer: withheld for peer, withheld in held.items() if withheld != WITHHELD_NOTHING}

    @property
    def signed(self) -> tuple[str, ...]:
        """The peers that show signs with their candidates."""
        return tuple(peer for peer in self._peers if self._accepted[peer].signed)

    @property
    def by_sets(self) -> tuple[str, ...]:
        """The peers some of whose columns are split by sets of categories."""
        return tuple(peer for peer in self._peers if self._accepted[peer].by_sets)

    def mark_ready(self, peer: str) -> None:
        """The engine has taken the setup of ``peer``."""
        self._ready.add(peer)

    @property
    def is_complete(self) -> bool:
        """Whether every peer is ready."""
        return len(self._ready) == len(self._peers)

    def common_trees(self, own: int, alone: int) -> int:
        """The trees that all hold: ``own`` at the active party, which grew the first ``alone``."""
        return min([own, *(max(body.trees, alone) for body in self._accepted.values())])


def keyed(
    table: ActiveTable, params: TrainParams, model: ModelBuilder | FoldModels, engine: ActiveHalf
) -> Plan[tuple[BinMatrix, Values]]:
    """Bin the label holder's table, begin its model, and make the session's secrets."""
    columns = tuple(category_places(table).values())
    bins = yield from single(
        BinTable(table.values, ~table.evaluation, params.max_bin, columns, params.max_cat_to_onehot)
    )
    yield from model.start()
    public = yield from engine.open()
    return bins, public


def opening_of(
    name: str,
    table: ActiveTable,
    params: TrainParams,
    model: ModelBuilder | FoldModels,
    engine: Engine,
    public: Values,
    peers: tuple[str, ...],
) -> TrainingOpen:
    """The terms on which a training of ``model`` is offered to every passive party of ``peers``."""
    return TrainingOpen(
        model=name,
        rows=len(table.label),
        alignment=table.alignment,
        alignment_name=table.alignment_name,
        evaluation=Bitmap.of(table.evaluation),
        engine=engine.name,
        sums="hidden" if engine.hides_sums else "shown",
        chain=peers if engine.hides_sums and len(peers) > 1 else (),
        public=pack_payload(public),
        trees=model.total_trees,
        active_only_trees=model.trees_alone,
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
        max_cat_to_onehot=params.max_cat_to_onehot or 0,
    )

"""How does a feature holder take up a training: what does it check, prepare and commit to?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedmq.boosting.model.lookup_table import LookupTable
from fedmq.boosting.model.share import Withheld
from fedmq.boosting.splits import CandidateTable
from fedmq.computation import Computation
from fedmq.errors import FedmqError, Refused, SourceAway
from fedmq.messages import training
from fedmq.messages.array import pack_payload, unpack_payload
from fedmq.messages.body import SessionRefuse
from fedmq.privacy.engine import Engine
from fedmq.privacy.plan import Plan, single
from fedmq.protocol.events import ComputationFailed, Interrupted, SaveCommitment
from fedmq.protocol.machine import REFUSES, UNLOADED, OwnConsent, on_message
from fedmq.protocol.records import AnsweredSums, PassiveTree, Signing
from fedmq.protocol.training.candidate_order import RootCells
from fedmq.protocol.training.category_columns import category_places
from fedmq.protocol.training.column_constraints import kept_constraints
from fedmq.protocol.training.commitment import committed, noise_secret
from fedmq.protocol.training.computations import BinTable
from fedmq.protocol.training.passive_continuing import FindShare, PassiveContinuing
from fedmq.protocol.training.prepared import PreparedTraining
from fedmq.protocol.training.shown_candidates import Showing
from fedmq.protocol.training.states import (
    OUT_OF_REACH,
    PASSIVE_TRAINING,
    PREPARED,
    PassiveTrainingState,
)
from fedmq.protocol.training.sums_counter import SumsCounter, check_sums_bytes
from fedmq.protocol.training.tables import PassiveTable
from fedmq.protocol.training.transcripts import Transcripts

__all__ = ["PassiveOpening"]

State = PassiveTrainingState


class PassiveOpening(PassiveContinuing):
    """Reads the terms, prepares for them, and accepts or refuses them.

    ``load`` computes the :class:`PassiveTable`. ``engine`` finds an engine by its name, or raises
    Refused. ``secret`` seeds the order in which candidates are shown; it must not be guessable.
    Nodes in which fewer than ``smallest_node`` rows carry a gradient are declined: the sums of few
    rows would disclose their gradients. In the others, cells of fewer than ``smallest_cell`` rows
    are merged; 0: none. ``saved`` is this party's part of the trees of earlier
    attempts at the session; ``returning``: there were some, so a table out of reach is waited for;
    ``finished``: one of them has finished here.
    ``answered``: what was answered before, and may be; not counted without it. ``most_sums_bytes``
    may be taken by the sums of a tree. With ``signing`` it commits to its table, and signs.
    ``find_share``: of a model that is continued. ``consent_within``: seconds within which this
    party's owner answers whether it takes part, and nothing is read before; 0: nobody is asked.
    ``others``: the passive parties with which it finds winners, where sums are hidden.
    """

    TABLE = PASSIVE_TRAINING
    PARTS = (OwnConsent,)
    failed_state = State.FAILED
    interrupted_state = State.INTERRUPTED

    def __init__(
        self,
        party: str,
        peer: str,
        load: Computation,
        engine: Callable[[str], Engine],
        secret: int,
        parallelism: int = 1,
        saved: Sequence[PassiveTree] = (),
        smallest_node: int = 0,
        smallest_cell: int = 0,
        returning: bool = False,
        finished: bool = False,
        answered: AnsweredSums | None = None,
        most_sums_bytes: int | None = None,
        signing: Signing | None = None,
        find_share: FindShare | None = None,
        consent_within: int = 0,
        others: Sequence[str] = (),
    ) -> None:
        super().__init__(State.READY, (peer, *others))
        if signing is not None:
            self.witness = Transcripts(self, party, (peer,), signing, active=peer)
        self._party = party
        self._peer = peer
        self._load = load
        self._find_engine = engine
        self._secret = secret
        self._parallelism = parallelism
        self._smallest_node = smallest_node
        self._smallest_cell = smallest_cell
        self._returning = returning
        self._finished = finished
        self._answered = answered
        self._withheld = Withheld(smallest_node=smallest_node, smallest_cell=smallest_cell)
        """Of all trees: an earlier attempt may have had another policy."""
        for tree in saved:
            self._withheld = self._withheld.and_of(tree.withheld)
        self._most_sums_bytes = most_sums_bytes
        self._find_share = find_share
        self._consent = OwnConsent(self, consent_within, self._prepare, self._refuse)
        self._attach(self._consent)
        self._saved: tuple[PassiveTree, ...] | None = tuple(saved)
        """The trees of earlier attempts, until the active party has chosen which of them stay."""
        self._next_tree = saved[-1].number + 1 if saved else 0
        # Set when the session opens, when all is prepared, and when the first tree begins:
        self._terms: training.TrainingOpen
        self._spec: Engine
        self._prepared: PreparedTraining
        self._records: LookupTable
        self._places: list[tuple[int, int]] = []
        """Tree and node of each record."""

    @property
    def awaits_consent(self) -> bool:
        return self.state is State.ASKING

    @property
    def table(self) -> PassiveTable:
        """What it trains on, once all is prepared."""
        return self._prepared.table

    @on_message(training.TrainingOpen)
    def _on_open(self, _: str, body: training.TrainingOpen) -> None:
        self._terms = body
        try:
            self._spec = self._find_engine(body.engine).on_terms(body.sums)
        except FedmqError as error:
            self._refuse(Refused(str(error)))
            return
        self._consent.begin(self._peer)

    def _prepare(self) -> None:
        self._run(PREPARED, self._preparing(self._spec), self._accept)

    def _preparing(self, spec: Engine) -> Plan[PreparedTraining]:
        table: PassiveTable = yield from single(self._load)
        table.check(self._party, self._peer, self._terms, self._saved or ())
        if self._terms.outputs > 1 and not spec.takes_vectors:
            raise Refused(f"engine {spec.name} sums one g and h a row, not {self._terms.outputs}")
        if set(self._terms.chain) - {self._party} != set(self.peers) - {self._peer}:
            raise Refused(f"{self._party} was not told who takes part")
        if self._terms.decoys and spec.hides_rows:
            raise Refused(f"engine {spec.name!r} has no decoys")
        yield from self._finding(self._party, table)
        learning = ~self._terms.evaluation.numpy()
        constraints = kept_constraints(self._party, table, self._terms, spec)
        columns = tuple(category_places(table).values())
        by_sets = self._terms.max_cat_to_onehot or None
        if by_sets is not None and not spec.finds_sets:
            raise Refused(f"engine {spec.name!r} finds no sets of categories")
        bins = yield from single(
            BinTable(table.values, learning, self._terms.max_bin, columns, by_sets)
        )
        candidates = len(CandidateTable.of(bins.cuts))
        answered = None if spec.hides_sums else self._answered
        counter = SumsCounter(self._party, answered, table.row_set, int(learning.sum()))
        try:
            engine = spec.passive(unpack_payload(self._terms.public), bins, self._parallelism)
            secret = noise_secret(self._secret)
            engine.start_session(learning, self._terms.value_bits, secret, self._terms.outputs)
            check_sums_bytes(self._party, engine, self._terms, self._most_sums_bytes)
        except FedmqError as error:
            raise Refused(str(error)) from error
        agreed = counter.agree(self._terms, self._next_tree, candidates, engine.nodes_per_query)
        setup = yield from engine.setup()
        root = RootCells(int(np.count_nonzero(learning)))
        showing = Showing(bins, self._secret, self._smallest_cell, learning, root)
        commitment = None
        if self.witness is not None:
            limits = (self._smallest_node, self._smallest_cell)
            commitment = yield from committed(spec, table, bins, self._secret, *limits)
        return PreparedTraining(
            spec,
            engine,
            table,
            bins,
            candidates,
            constraints,
            setup,
            showing,
            counter,
            agreed,
            commitment,
        )

    def _accept(self, prepared: PreparedTraining) -> None:
        self._prepared, setup, commitment = prepared, prepared.setup, prepared.commitment
        self._effects += prepared.agreed
        if commitment is not None:
            self._emit(SaveCommitment(commitment))
        accept = training.SessionAccept(
            setup_pieces=len(setup),
            trees=self._next_tree,
            candidates=prepared.candidates,
            signed=bool(prepared.constraints.signs.any()),
            by_sets=bool(prepared.bins.cuts.category_columns),
            smallest_node=self._withheld.smallest_node,
            smallest_cell=self._withheld.smallest_cell,
            commitment=b"" if commitment is None else commitment.root,
        )
        self._send(self._peer, accept)
        for number, values in enumerate(setup):
            payload = pack_payload(values)
            self._send(self._peer, training.EngineSetup(piece=number, payload=payload))

    def _on_computation_failed(self, event: ComputationFailed) -> None:
        if self.state is not State.PREPARING:
            super()._on_computation_failed(event)
        elif self._returning and isinstance(event.error, SourceAway):
            self._move(OUT_OF_REACH)
            self._emit(Interrupted(self._party, f"cannot reach its data: {event.error}"))
        else:
            self._refuse(event.error)

    def _refuse(self, error: FedmqError) -> None:
        # What went wrong may quote this party's data. The peer reads what was meant for it alone.
        reason = str(error)[:2000] if isinstance(error, Refused) else UNLOADED
        self._move(REFUSES)
        self._send(self._peer, SessionRefuse(reason=reason))
        self._fail(error, but=self._peer, disclosed=reason)

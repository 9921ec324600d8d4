"""What does a passive party do in a training (SecureBoost, Algorithm 1)?

It answers sums over ciphertexts per opaque candidate and keeps its own thresholds. Of its winning
candidates it discloses only a record id and the rows that go left.

`PassiveTraining` is the machine; `states` says which message is legal when. Its parts, in the order
of a session:

    READY, ASKING    OwnConsent         the owner of this party may have to agree first
    PREPARING        PassiveTraining    reads the terms and its own table, accepts or refuses
    BETWEEN_TREES    EarlierDirections  where rows go in the trees of a model that is continued,
                                        or refreshed: then no tree follows
    RECEIVING        PassiveGrowth      takes the gradients of a tree
    GROWING          PassiveGrowth      answers sums, and splits nodes that it wins;
                     PassiveComparisons compares candidates whose sums are hidden
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import Cuts
from fedmq.boosting.model.continued import continued_passive, places_digest, refreshed_passive
from fedmq.boosting.model.share import PassiveShare, Withheld
from fedmq.computation import Computation
from fedmq.errors import FedmqError, OldState, ProtocolError, Refused, SourceAway
from fedmq.messages import training
from fedmq.messages.array import Bitmap, pack_payload, unpack_payload
from fedmq.messages.body import Abort, Body
from fedmq.messages.inference import HopReply, InferenceHop
from fedmq.messages.training import TrainingOpen
from fedmq.privacy.engine import MOST_SORTED, Engine, PassiveHalf, PassiveHidesSums
from fedmq.privacy.plan import Plan, single
from fedmq.protocol.events import ComputationFailed, Finish, Interrupted, Report, Save
from fedmq.protocol.machine import (
    UNLOADED,
    Machine,
    OwnConsent,
    Part,
    Speaker,
    on_message,
    turn_down,
)
from fedmq.protocol.session_records import (
    EarlierSums,
    PassiveTree,
    PeopleAnswered,
    RowPeople,
    Signing,
    SumLedger,
    all_places,
    all_records,
    most_nodes,
)
from fedmq.protocol.training.candidates import DisclosureRules, OwnColumns, RootCells
from fedmq.protocol.training.passive_growth import (
    OwnSplits,
    PassiveComparisons,
    PassiveGrowth,
    PassiveTerms,
    PreparedTraining,
)
from fedmq.protocol.training.states import (
    EARLIER_DIRECTIONS,
    OUT_OF_REACH,
    PASSIVE_TRAINING,
    PREPARED,
    PassiveTrainingState,
)
from fedmq.protocol.training.terms import (
    REGROWN,
    PassiveTable,
    bin_table,
    binned_places,
    category_places,
    columns_by_sets,
    kept_constraints,
)
from fedmq.protocol.training.transcripts import Transcripts, committed, noise_secret
from fedmq.protocol.tree_walk import IF_NO_OLD_SHARE, OneWay, answer_hop

__all__ = [
    "ComparePeople",
    "EarlierDirections",
    "FindShare",
    "PassiveTraining",
    "check_earlier",
    "check_sums_bytes",
    "kept_before",
]


FindShare = Callable[[str], Computation]
"""Finds this party's share of a model by its name; None if there is none."""

ComparePeople = Callable[[PeopleAnswered], Computation]
"""Compares people with those of other sessions; the computation raises Refused."""


State = PassiveTrainingState


class EarlierDirections(Part):
    """Answers directions in the trees of an earlier model, before new trees grow."""

    def __init__(self, machine: Machine, find_share: FindShare | None) -> None:
        super().__init__(machine)
        self._find_share = find_share
        self._earlier: tuple[PassiveShare, PassiveTable] | None = None
        self._one_way: OneWay
        self._ended = False

    def find(self, party: str, table: PassiveTable, terms: TrainingOpen) -> Plan[None]:
        """Find the share of ``party`` in the model that the terms name; Refused without it."""
        model = terms.earlier_model
        if not model and not terms.trees:
            raise Refused("no tree is to grow, and no model is named whose leaves are weighed anew")
        if not model:
            return
        if self._find_share is None:
            raise Refused(f"{party} continues no models")
        share: PassiveShare | None = yield from single(self._find_share(model))
        if share is None:
            raise Refused(f"{party} has no share of model {model!r}")
        check_earlier(party, share, table, terms)
        self._earlier = share, table
        self._one_way = OneWay(share.places, len(table.values))

    @on_message(InferenceHop)
    def _on_hop(self, peer: str, hop: InferenceHop) -> None:
        if self._earlier is None or self._ended:
            raise ProtocolError("directions in trees of an earlier model, out of place")
        share, table = self._earlier
        rows, records = hop.rows.numpy(), hop.records.numpy()
        if (len(rows) and int(rows.max()) >= len(table.values)) or (
            len(records) and int(records.max()) >= len(share.lookup_table)
        ):
            raise ProtocolError(
                f"hop {hop.hop} asks for rows or records that do not exist{IF_NO_OLD_SHARE}"
            )
        here = rows.astype(np.int64)
        counts = hop.counts.numpy()
        pairs = here, np.repeat(records.astype(np.int64), counts)
        self._one_way.ask(*pairs)
        computation = answer_hop.bind(share.lookup_table, table.values, records, counts, here)
        answer = partial(self._answer_hop, peer, hop.hop, pairs)
        self._run(EARLIER_DIRECTIONS, single(computation), answer)

    def _answer_hop(
        self,
        peer: str,
        hop: int,
        pairs: tuple[NDArray[np.int64], NDArray[np.int64]],
        left: NDArray[np.bool_],
    ) -> None:
        self._one_way.answer(*pairs, left)
        self._send(peer, HopReply(hop=hop, left=Bitmap.of(left)))

    def end(self) -> None:
        """End: the first tree of this attempt begins, so no more directions are due."""
        self._ended = True

    def refreshed(self, terms: TrainingOpen) -> PassiveShare:
        """The share of the earlier model under its new name."""
        assert self._earlier is not None
        return refreshed_passive(self._earlier[0], terms.model, terms.earlier_trees)

    def continued(self, share: PassiveShare, trees: int) -> PassiveShare:
        """The ``share`` of the new trees, with the records of the ``trees`` before them."""
        if self._earlier is not None:
            return continued_passive(self._earlier[0], share, trees)
        later = tuple((tree + trees, node) for tree, node in share.places)
        return share.model_copy(update={"places": later})


def check_earlier(
    party: str, share: PassiveShare, table: PassiveTable, terms: TrainingOpen
) -> None:
    """Raise Refused unless ``share`` is the share of ``party`` in the model that ``terms`` name."""
    model = terms.earlier_model
    if share.lookup_table.feature_names != table.features:
        raise Refused(f"model {model!r} was trained on other columns of {party}")
    whole = len(share.places) == len(share.lookup_table)
    if not whole or places_digest(share.places) != terms.earlier_places:
        raise Refused(
            f"the share of model {model!r} at {party} is of another training of that name, or of "
            "an earlier version of fedmq"
        )


class PassiveTraining(Machine):
    """Trains with the active party ``peer``; finishes with a :class:`PassiveShare`.

    A cross-validation keeps no share, and finishes with None.

    ``load`` computes the :class:`PassiveTable`. ``engine`` finds an engine by its name, or raises
    Refused. ``secret`` seeds the order of shown candidates; it must not be guessable. The party
    declines nodes with fewer than ``smallest_node`` rows that carry a gradient: the sums of few
    rows would disclose their gradients. In other nodes it merges cells of fewer than
    ``smallest_cell`` rows; 0: none. ``saved``: this party's part of the trees of earlier attempts.
    ``returning``: there were earlier attempts, so the machine waits for a table out of reach.
    ``finished``: an earlier attempt has finished here.
    ``answered``: the sums answered before, and their limit; without it sums are not counted.
    ``most_sums_bytes``: the most bytes for the sums of a tree. With ``signing`` the party commits
    to its table, and signs. ``find_share`` finds the share of a continued model.
    ``consent_within``: seconds that this party's owner has to answer, before any data is read; 0:
    the owner is not asked. ``compare`` compares the people who learn with those of other sessions,
    or raises Refused; None: they are not compared. ``others``: the passive parties that find
    winners with it, if sums are hidden.
    """

    TABLE = PASSIVE_TRAINING
    PARTS = (OwnConsent, EarlierDirections, PassiveGrowth, PassiveComparisons)
    SPEAKERS: ClassVar[Mapping[type[Body], Speaker]] = {
        **dict.fromkeys(
            (
                training.TrainingOpen,
                InferenceHop,
                training.TreeStarted,
                training.GradientBroadcast,
                training.HistogramRequest,
                training.QueryPiece,
                training.CircuitPiece,
                training.DirectionsQuery,
                training.SplitDecision,
                training.NodeAssignment,
                training.TreeFinished,
                training.SessionFinished,
            ),
            Speaker.ACTIVE,
        ),
        Abort: Speaker.ACTIVE_OR_IGNORED,  # the active party hears of it, and tells all
    }
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
        earlier_sums: EarlierSums | None = None,
        most_sums_bytes: int | None = None,
        signing: Signing | None = None,
        find_share: FindShare | None = None,
        consent_within: int = 0,
        others: Sequence[str] = (),
        compare: ComparePeople | None = None,
    ) -> None:
        super().__init__(State.READY, (peer, *others), active=peer)
        if signing is not None:
            self.witness = Transcripts(self, party, (peer,), signing, active=peer)
        self._party = party
        self._load = load
        self._find_engine = engine
        self._secret = secret
        self._parallelism = parallelism
        self._smallest_node = smallest_node
        self._smallest_cell = smallest_cell
        self._returning = returning
        self._finished = finished
        self._earlier_sums = earlier_sums
        self._most_sums_bytes = most_sums_bytes
        self._compare = compare
        self._withheld = Withheld(smallest_node=smallest_node, smallest_cell=smallest_cell)
        """The withheld sums of all trees: an earlier attempt may have had another policy."""
        for tree in saved:
            self._withheld = self._withheld.and_of(tree.withheld)
        self._saved: tuple[PassiveTree, ...] | None = tuple(saved)
        """The trees of earlier attempts, until the active party has chosen those that stay."""
        self._next_tree = saved[-1].number + 1 if saved else 0
        self._consent = OwnConsent(self, consent_within, self._prepare, self._refuse)
        self._attach(self._consent)
        self._earlier = EarlierDirections(self, find_share)
        self._attach(self._earlier)
        self._terms: PassiveTerms
        self._spec: Engine
        self._prepared: PreparedTraining
        self._splits: OwnSplits
        self._growth: PassiveGrowth

    @property
    def awaits_consent(self) -> bool:
        return self.state is State.ASKING

    @property
    def table(self) -> PassiveTable:
        """The table of the training, once it is prepared."""
        return self._prepared.table

    def check(self) -> None:
        if self.state is State.GROWING:
            self._growth.rows.check()

    # The active party opens the training; this party accepts or refuses

    @on_message(training.TrainingOpen)
    def _on_open(self, _: str, body: training.TrainingOpen) -> None:
        self._terms = PassiveTerms(self._party, self.active, body, self._smallest_node)
        try:
            self._spec = self._find_engine(body.engine).on_terms(body.sums)
        except FedmqError as error:
            self._refuse(Refused(str(error)))
            return
        self._consent.begin(self.active)

    def _prepare(self) -> None:
        self._run(PREPARED, self._preparing(self._spec), self._accept)

    def _preparing(self, spec: Engine) -> Plan[PreparedTraining]:
        """Read this party's data and set up its half of the engine; Refused if that fails."""
        table: PassiveTable = yield from single(self._load)
        asked = self._terms.asked
        table.check(self._party, self.active, asked, self._saved or ())
        if asked.outputs > 1 and (spec.hides_sums or not spec.traits.takes_vectors):
            raise Refused(f"engine {spec.name} sums one g and h a row, not {asked.outputs}")
        if set(asked.chain) - {self._party} != set(self.peers) - {self.active}:
            raise Refused(f"{self._party} does not know the other parties")
        if asked.decoys and (spec.traits.hides_rows or spec.hides_sums):
            raise Refused(f"engine {spec.name!r} has no decoys")
        yield from self._find_earlier(table)
        learning = ~asked.evaluation.numpy()
        constraints = kept_constraints(self._party, table, asked, spec)
        of_sets = tuple(category_places(table).values())
        by_sets = asked.max_cat_to_onehot or None
        if by_sets is not None and not (spec.shows_exact_sums or spec.hides_sums):
            raise Refused(f"engine {spec.name!r} finds no sets of categories")
        bins = yield from single(
            bin_table.bind(
                table.values, learning, asked.max_bin, of_sets, by_sets, binned_places(table)
            )
        )
        columns = OwnColumns(bins, asked)
        earlier = None if spec.hides_sums else self._earlier_sums
        ledger = SumLedger(self._party, earlier, table.row_set, int(learning.sum()))
        try:
            engine = spec.passive(unpack_payload(asked.public), bins, self._parallelism)
            if isinstance(engine, PassiveHidesSums):
                _check_sorted(self._party, engine, bins.cuts)
            secret = noise_secret(self._secret)
            engine.start_session(learning, asked.value_bits, secret, asked.outputs)
            check_sums_bytes(self._party, engine, asked, self._most_sums_bytes)
        except FedmqError as error:
            raise Refused(str(error)) from error
        agreed = ledger.agree(
            asked, self._next_tree, len(columns.candidates), engine.nodes_per_query
        )
        if self._smallest_node and table.lacks_people:
            # Rows without values would count, and a node could hold a single person of this party.
            raise Refused(
                f"{self._party} lacks people of the alignment, and has a smallest_node: align with "
                'join = "inner"'
            )
        if (self._smallest_node or self._smallest_cell) and table.repeats_people:
            raise Refused(
                f"{self._party} has a smallest_node or smallest_cell, and counts rows by it, of "
                "which some people have several: align with one row of each, duplicates = "
                '"first" or "last"'
            )
        people = (
            None
            if table.people is None
            else RowPeople(self._party, table.people, learning, asked.folds)
        )
        if people is not None and self._compare is not None:
            yield from single(self._compare(people.of_session()))
        setup = yield from engine.setup()
        root = RootCells(int(np.count_nonzero(learning)))
        rules = DisclosureRules(bins, self._secret, self._smallest_cell, learning, root)
        commitment = None
        if self.witness is not None:
            limits = (self._smallest_node, self._smallest_cell)
            commitment = yield from committed(spec, table, bins, self._secret, *limits)
        return PreparedTraining(
            spec,
            engine,
            table,
            columns,
            constraints,
            setup,
            rules,
            ledger,
            people,
            agreed,
            commitment,
        )

    def _find_earlier(self, table: PassiveTable) -> Plan[None]:
        """Find the share of the continued model, if any."""
        yield from self._earlier.find(self._party, table, self._terms.asked)

    def _accept(self, prepared: PreparedTraining) -> None:
        self._prepared, setup, commitment = prepared, prepared.setup, prepared.commitment
        if prepared.people is not None:
            self._emit(Save(prepared.people.of_session()))
        self._effects += map(Save, prepared.agreed)
        if commitment is not None:
            self._emit(Save(commitment))
        accept = training.SessionAccept(
            setup_pieces=len(setup),
            trees=self._next_tree,
            candidates=len(prepared.columns.candidates),
            signed=bool(prepared.constraints.signs.any()),
            by_sets=bool(prepared.columns.bins.cuts.category_columns),
            smallest_node=self._withheld.smallest_node,
            smallest_cell=self._withheld.smallest_cell,
            commitment=b"" if commitment is None else commitment.root,
        )
        self._send(self.active, accept)
        for number, values in enumerate(setup):
            payload = pack_payload(values)
            self._send(self.active, training.EngineSetup(piece=number, payload=payload))

    def _on_computation_failed(self, event: ComputationFailed) -> None:
        if self.state is not State.PREPARING:
            super()._on_computation_failed(event)
        elif self._returning and isinstance(event.error, SourceAway):
            self._move(OUT_OF_REACH)
            self._emit(Interrupted(self._party, f"cannot reach its data: {event.error}"))
        else:
            self._refuse(event.error)

    def _refuse(self, error: FedmqError) -> None:
        # The error may quote this party's data. The peer reads only reasons meant for it.
        reason = str(error)[:2000] if isinstance(error, Refused) else UNLOADED
        turn_down(self, self.active, reason)
        self._fail(error, except_for=self.active, disclosed=reason)

    # Trees

    @on_message(training.TreeStarted)
    def _on_tree_started(self, _: str, body: training.TreeStarted) -> None:
        self._rewind(body.tree)
        asked = self._terms.asked
        if not max(self._next_tree, asked.active_only_trees) <= body.tree < asked.trees:
            raise ProtocolError(f"tree {body.tree} is not due")
        self._growth = PassiveGrowth(
            self, self._terms, self._prepared, self._splits, body.tree, body.pieces
        )
        self._attach(self._growth)
        self._attach(self._growth.comparisons)

    def _rewind(self, tree: int) -> None:
        """Keep the saved trees of earlier attempts before ``tree``."""
        if self._saved is None:
            return
        kept = kept_before(tree, self._saved, finished=self._finished, active=self.active)
        self._splits = OwnSplits(all_records(self.table.features, kept), all_places(kept))
        self._next_tree = kept[-1].number + 1 if kept else 0
        self._saved = None
        self._earlier.end()

    @on_message(training.TreeFinished)
    def _on_tree_finished(self, _: str, body: training.TreeFinished) -> None:
        growth = self._growth
        if body.tree != growth.tree or self._plans:
            raise ProtocolError(f"tree {body.tree} is not complete")
        self._effects += map(Save, growth.end())
        given, taken = (
            tuple(sorted(hashes)) for hashes in (growth.comparisons.given, growth.comparisons.taken)
        )
        del self._growth
        records = self._splits.table.since(growth.records_before)
        nodes = self._splits.of_tree(growth.tree)
        saved = PassiveTree(growth.tree, records, self.table.digest, nodes, self._withheld)
        self._emit(Save(saved))
        saying = training.TreeSaved(tree=growth.tree, given=given, taken=taken)
        self._send(self.active, saying)
        self._next_tree = growth.tree + 1
        self._emit(Report(self._next_tree, self._terms.asked.trees, "tree", {}))

    # The end

    @on_message(training.SessionFinished)
    def _on_finished(self, _: str, body: training.SessionFinished) -> None:
        self._rewind(body.trees)
        if body.trees < self._next_tree:
            raise ProtocolError(
                f"a model of {body.trees} trees, of which {self._next_tree} have grown"
            )
        asked = self._terms.asked
        if asked.folds > 1:
            self._emit(Finish(None))
            return
        if not asked.trees:
            self._emit(Finish(self._earlier.refreshed(asked)))
            return
        records, places = self._splits.table, self._splits.places
        complete = len(places) == len(records)  # an old checkpoint may lack some
        columns = columns_by_sets(self.table, self._prepared.columns.bins.cuts)
        share = PassiveShare(
            model_id=asked.model,
            party=self._party,
            lookup_table=records.model_copy(update={"category_columns": columns}),
            places=tuple(places) if complete else (),
            withheld=self._withheld,
        )
        self._emit(Finish(self._earlier.continued(share, asked.earlier_trees)))


def check_sums_bytes(
    party: str, engine: PassiveHalf, terms: TrainingOpen, most: int | None
) -> None:
    """Raise Refused if the sums of a tree may take more than ``most`` bytes of memory."""
    needed = engine.sums_bytes(most_nodes(terms.max_depth, terms.rows, terms.max_leaves))
    if most is not None and needed > most:
        raise Refused(
            f"{party} takes {most / 1e9:,g} GB for the sums of a tree at most (most_sums_bytes), "
            f"and depth {terms.max_depth} with max_bin = {terms.max_bin} may take "
            f"{needed / 1e9:,.1f} GB"
        )


def kept_before(
    tree: int, saved: Sequence[PassiveTree], *, finished: bool, active: str
) -> tuple[PassiveTree, ...]:
    """The trees of ``saved`` before ``tree``, from which the session continues.

    ``finished``: an earlier attempt has finished at this party, so all parties have all trees.
    Raises OldState if more trees would grow again than a crash can cost.
    """
    kept = tuple(earlier for earlier in saved if earlier.number < tree)
    if len(saved) - len(kept) > (0 if finished else REGROWN):
        raise OldState(
            f"tree {tree} grows again, though all parties have saved {saved[-1].number + 1} trees: "
            f"the state of {active} is old, as if put back from a backup, or that of a party that "
            "it did not name"
        )
    return kept


def _check_sorted(party: str, engine: PassiveHidesSums, cuts: Cuts) -> None:
    """Check that circuits can sort the categories of columns that are split by sets.

    Raises:
        Refused: without a column's name or its number of categories, for the active party reads it.
    """
    most = max((len(cuts.categories(column)) for column in cuts.category_columns), default=0)
    if most and not engine.sorts_categories:
        why = "copies of circuits (covert) sort no categories"
    elif most > MOST_SORTED:
        why = f"circuits of hidden sums sort {MOST_SORTED} categories of a column at most"
    else:
        return
    raise Refused(
        f"{party} has a column that max_cat_to_onehot splits by sets of categories: {why}; give a "
        "larger max_cat_to_onehot, or leave category_sets out of the job or of the party's policy"
    )

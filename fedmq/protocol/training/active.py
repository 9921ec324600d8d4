"""What does the active party do in a training (SecureBoost, Algorithm 2)?

`ActiveTraining` is the machine: `states` says which event is legal when, and each part of the
machine has the handlers of some states. In the order of a session:

    READY, KEYING, OPENING   Opening       makes keys, sends the terms, takes each peer's setup
    OPENING                  PeerConsents  the owners of peers may have to agree first
    WALKING                  EarlierTrees  rows walk down the trees of a model that is continued,
                                           or whose leaves are weighed anew
    DERIVING, PAUSED         Rounds        gradients; a tree begins when the last is on all disks
    GROWING, SPLITTING       ActiveGrowth  a tree: see `active_growth`
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.callbacks import Callbacks
from fedmq.boosting.gradients import Gradients
from fedmq.boosting.model.continued import (
    continued_active,
    places_digest,
    places_of,
    refreshed_active,
)
from fedmq.boosting.model.cross_validated import CrossValidated
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import Forest, Tree
from fedmq.boosting.params import TrainParams
from fedmq.computation import computation
from fedmq.errors import Inconsistent, MessageError, ProtocolError
from fedmq.messages import training
from fedmq.messages.body import SessionRefuse
from fedmq.messages.inference import HopReply
from fedmq.privacy.engine import Engine
from fedmq.privacy.plan import Plan, Values, single
from fedmq.protocol.events import (
    ComputationFailed,
    Finish,
    Pause,
    Report,
    Resume,
    Save,
    Start,
)
from fedmq.protocol.machine import Machine, Part, PeerConsents, on, on_message
from fedmq.protocol.session_records import ActiveTree, Signing
from fedmq.protocol.training.active_growth import ActiveGrowth, DecoyGrowth, check_decoys
from fedmq.protocol.training.candidates import OwnColumns
from fedmq.protocol.training.comparisons import Comparisons, check_handed_on
from fedmq.protocol.training.folds import FoldModels
from fedmq.protocol.training.model import ModelBuilder, refresh_leaves
from fedmq.protocol.training.states import (
    ACTIVE_TRAINING,
    ALL_READY,
    CONTINUES,
    EARLIER_MARGINS,
    GRADIENTS,
    KEYS,
    MODEL_COMPLETE,
    PEER_SETUP,
    REFRESHED,
    RESTS,
    TREE_BEGINS,
    TREE_COMPLETE,
    WALK,
    ActiveTrainingState,
)
from fedmq.protocol.training.terms import (
    Acceptances,
    ActiveTable,
    MainModel,
    TrainingTerms,
    bin_table,
    binned_places,
    category_places,
    columns_by_sets,
    continuing,
    refreshing,
)
from fedmq.protocol.training.transcripts import Transcripts
from fedmq.protocol.tree_walk import Hop, Walked, walk_on

__all__ = ["ActiveTraining", "EarlierTrees", "Opening", "Rounds"]

State = ActiveTrainingState


class Opening(Part):
    """Makes keys, sends the terms, and takes each peer's acceptance and setup.

    ``earlier``: the model that the training continues, if any; each peer learns which share it
    needs.
    """

    def __init__(self, machine: ActiveTraining, earlier: ActiveShare | None) -> None:
        super().__init__(machine)
        self._training = machine
        self._acceptances = machine.acceptances
        self._earlier = earlier

    @on(Start)
    def _on_start(self, _: Start) -> None:
        self._run(KEYS, self._keyed(), self._open)

    def _keyed(self) -> Plan[tuple[BinMatrix, Values]]:
        """Bin the active party's table, begin its model, and make the session's secrets."""
        table, params = self._training.terms.table, self._training.terms.params
        columns = tuple(category_places(table).values())
        learning = ~table.evaluation
        given, by_sets = binned_places(table), params.max_cat_to_onehot
        binning = bin_table.bind(table.values, learning, params.max_bin, columns, by_sets, given)
        bins = yield from single(binning)
        yield from self._training.model.start()
        public = yield from self._training.engine.open()
        return bins, public

    def _open(self, made: tuple[BinMatrix, Values]) -> None:
        terms, (bins, public) = self._training.terms, made
        self._training.columns = OwnColumns(bins, terms.params)
        # A passive party of a version before it reads no terms with this field.
        signed = terms.hides_sums and self._training.witness is not None
        opening = terms.opening(public).model_copy(update={"signed_circuits": signed})
        for peer in terms.peers:
            told = terms.about_fallbacks(peer, terms.constraints.opening(peer, opening))
            self._send(peer, self._about_earlier(peer, told))
        self._set_out_when_ready()

    def _about_earlier(self, peer: str, opening: training.TrainingOpen) -> training.TrainingOpen:
        share = self._earlier
        if share is None:
            return opening
        known = places_of(share, peer) if peer in share.parties else ()
        named = share.model_id if peer in share.parties else ""
        return opening.model_copy(
            update={
                "earlier_model": named,
                "earlier_trees": len(self._training.walked_trees(share)),
                "earlier_places": places_digest(known),
            }
        )

    @on_message(training.SessionAccept)
    def _on_accept(self, peer: str, body: training.SessionAccept) -> None:
        self._training.consents.answered(peer)
        self._acceptances.add(peer, body, self._training.engine.largest_setup)
        self._set_up(peer)

    @on_message(training.EngineSetup)
    def _on_setup(self, peer: str, body: training.EngineSetup) -> None:
        self._acceptances.add_setup(peer, body.payload, body.signature)
        self._set_up(peer)

    def _set_up(self, peer: str) -> None:
        setup = self._acceptances.setup(peer)
        if setup is not None:
            plan = self._training.engine.setup(peer, setup)
            self._run(PEER_SETUP, plan, partial(self._peer_ready, peer))

    def _peer_ready(self, peer: str, _: None) -> None:
        self._acceptances.mark_ready(peer)
        self._set_out_when_ready()

    def _set_out_when_ready(self) -> None:
        if not self._acceptances.is_complete:
            return
        if self._earlier is None:
            self._move(ALL_READY)
            self._training.rounds.begin()
        else:
            self._move(CONTINUES)
            self._training.earlier_trees.walk(self._earlier)

    @on_message(SessionRefuse)
    def _on_refuse(self, peer: str, body: SessionRefuse) -> None:
        self._training.end_refused(peer, body)


@computation("AddLeaves")
def add_leaves(
    forest: Forest, leaves: NDArray[np.int32], margins: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Adds to the ``margins`` of rows the values of their ``leaves`` (rows, trees)."""
    return forest.added(leaves, margins)


class EarlierTrees(Part):
    """Walks all rows down the trees of an earlier model, like an inference.

    The first new round begins with the resulting margins (XGBoost's ``xgb_model``). Where no round
    follows, leaves are weighed anew on these rows (XGBoost's ``process_type = "update"``). Every
    attempt walks: a checkpoint may be of any tree, or of none.
    """

    def __init__(self, machine: ActiveTraining) -> None:
        super().__init__(machine)
        self._training = machine
        self._table = machine.terms.table

    def walk(self, share: ActiveShare) -> None:
        """Walk all rows down the trees of ``share``, from the roots."""
        self._share = share
        self._forest = Forest.of(self._training.walked_trees(share), share.params)
        rows = len(self._table.label)
        self._nodes = np.tile(self._forest.roots, rows)
        self._hops: dict[tuple[str, int], Hop] = {}
        self._hops_sent = self._walking = 0
        self._walk_on(np.arange(rows * len(self._forest.roots)), None)

    def _walk_on(self, pairs: NDArray[np.int64], left: NDArray[np.bool_] | None) -> None:
        self._walking += 1
        own, values = self._share.lookup_table, self._table.values
        walking = walk_on.bind(self._forest, own, values, pairs, self._nodes[pairs], left)
        self._run(WALK, single(walking), self._with_walked)

    def _with_walked(self, walked: Walked) -> None:
        self._walking -= 1
        self._nodes[walked.pairs] = walked.nodes
        for hop in walked.hops:
            peer = self._share.parties[hop.owner]
            self._hops_sent += 1
            self._hops[peer, self._hops_sent] = hop
            self._send(peer, hop.body(self._hops_sent))
        if not self._walking and not self._hops:
            self._end()

    def _end(self) -> None:
        leaves = self._nodes.reshape(len(self._table.label), -1)
        if self._training.terms.refreshes:
            within = leaves - self._forest.roots.astype(leaves.dtype)
            leaves_anew = self._training.refreshes_leaves
            weighing = refresh_leaves.bind(self._share, within, self._table, leaves_anew)
            self._run(REFRESHED, single(weighing), self._with_refreshed)
        else:
            adding = add_leaves.bind(self._forest, leaves, self._training.single_model.first_margin)
            self._run(EARLIER_MARGINS, single(adding), self._with_margins)

    @on_message(HopReply)
    def _on_hop_reply(self, peer: str, body: HopReply) -> None:
        hop = self._hops.get((peer, body.hop))
        if hop is None or body.left.count != len(hop.pairs):
            raise ProtocolError(f"unrequested directions for hop {body.hop}")
        del self._hops[peer, body.hop]
        self._walk_on(hop.pairs, body.left.numpy())

    def _with_refreshed(self, made: tuple[ActiveShare, NDArray[np.float32]]) -> None:
        del self._forest, self._nodes
        self._training.end_refreshed(*made)

    def _with_margins(self, margins: NDArray[np.float32]) -> None:
        del self._forest, self._nodes
        self._training.single_model.first_margin = margins
        self._training.rounds.begin()


class Rounds(Part):
    """Derives gradients between two trees, while the last tree reaches every disk.

    With ``paused`` no tree begins until the owner resumes the session.
    """

    def __init__(self, machine: ActiveTraining, *, paused: bool) -> None:
        super().__init__(machine)
        self._training = machine
        self._model = machine.model
        self._terms = machine.terms
        self._paused = paused
        self._unsaved: set[str] = set()
        self._saved: dict[str, training.TreeSaved] = {}
        """What peers say of the last tree."""
        self._derived: tuple[Gradients, dict[str, float]] | None = None

    def begin(self) -> None:
        """Begin with the last tree that all parties have, or with none."""
        saved, alone = len(self._model.saved), self._terms.trees_alone
        acceptances = self._training.acceptances
        acceptances.check_no_state_is_old(self._terms.party, saved, alone)
        self._model.rewind(acceptances.common_trees(saved, alone))
        self._derive()

    def _derive(self) -> None:
        self._run(GRADIENTS, self._model.derive(), self._with_gradients)

    def _with_gradients(self, derived: tuple[Gradients, dict[str, float]]) -> None:
        self._derived = derived
        self._begin_when_saved()

    @on_message(training.TreeSaved)
    def _on_saved(self, peer: str, body: training.TreeSaved) -> None:
        if body.tree != self._model.next_tree - 1 or peer not in self._unsaved:
            raise ProtocolError(f"tree {body.tree} is saved too early")
        self._unsaved.remove(peer)
        self._saved[peer] = body
        if not self._unsaved:
            check_handed_on(body.tree, self._saved)
            self._saved = {}
        self._begin_when_saved()

    def _begin_when_saved(self) -> None:
        """Begin a tree once the last is on every disk, so that a crash costs one tree at most."""
        if self._unsaved or self._derived is None:
            return
        tree, metrics = self._model.next_tree, self._derived[1]
        if tree:
            self._emit(Report(tree, self._terms.trees, "tree", metrics))
        self._model.add_metrics(metrics)
        if self._model.is_complete:
            self._move(MODEL_COMPLETE)
            self._training.end_complete()
        elif self._paused:
            self._move(RESTS)
        else:
            self._begin_tree()

    @on(Pause)
    def _on_pause(self, _: Pause) -> None:
        self._paused = True

    @on(Resume)
    def _on_resume(self, _: Resume) -> None:
        self._paused = False
        if self._training.state is State.PAUSED:
            self._begin_tree()

    def _begin_tree(self) -> None:
        self._move(TREE_BEGINS)
        assert self._derived is not None
        gradients, self._derived = self._derived[0], None
        self._training.grow(gradients)

    def end_tree(self, saved: ActiveTree, peers: Sequence[str]) -> None:
        """End a tree: ``peers`` save their parts of it, and this party ``saved``."""
        self._move(TREE_COMPLETE)
        # Sent before the checkpoint, so that all parties write to disk at the same time.
        for peer in peers:
            self._send(peer, training.TreeFinished(tree=saved.number))
        self._unsaved = set(peers)
        self._emit(Save(saved))
        self._derive()


class ActiveTraining(Machine):
    """Trains a model with ``peers``; finishes with an ``ActiveShare``.

    ``parallelism``: the number of computations worth running at once. The order of ``peers``
    decides ties between parties, as if their columns stood side by side in this order. ``saved``:
    the trees of earlier attempts at the session; with ``paused`` no new tree begins yet. With
    ``signing`` it keeps the signatures of peers, and signs too. ``callbacks`` may end it between
    rounds. Its trees continue those of ``earlier``, if given; with ``refreshes`` none grows, but
    the leaves of ``earlier`` are weighed anew by ``params``, if ``refreshes_leaves``; gains and
    covers are in any case. ``category_sets``: whether
    ``max_cat_to_onehot`` holds for columns of peers that agree, too. With ``decoys`` counting
    messages does not disclose whose columns split. ``fallbacks``: whether trainings without each of
    the peers follow; ``fallback_of``: the model of which this is such a training.

    Raises:
        ConfigError: parameters, engine and table do not fit together.
    """

    TABLE = ACTIVE_TRAINING
    PARTS = (Opening, PeerConsents, EarlierTrees, Rounds, ActiveGrowth, Comparisons)
    failed_state = State.FAILED
    interrupted_state = State.INTERRUPTED
    ends_everywhere = True

    def __init__(
        self,
        model: str,
        party: str,
        peers: Sequence[str],
        table: ActiveTable,
        params: TrainParams,
        engine: Engine,
        parallelism: int = 1,
        saved: Sequence[ActiveTree] = (),
        paused: bool = False,
        signing: Signing | None = None,
        callbacks: Callbacks | None = None,
        earlier: ActiveShare | None = None,
        category_sets: bool = True,
        decoys: bool = False,
        fallbacks: bool = False,
        fallback_of: MainModel | None = None,
        refreshes: bool = False,
        refreshes_leaves: bool = True,
    ) -> None:
        super().__init__(State.READY, peers)
        if earlier is not None and refreshes:
            earlier = earlier.model_copy(update={"params": params})
            params = refreshing(earlier, (party, *peers), table)
        elif earlier is not None:
            params = continuing(earlier, params, (party, *peers), table)
        if decoys:
            check_decoys(engine)
        self.terms = TrainingTerms.of(
            model,
            party,
            peers,
            table,
            params,
            engine,
            category_sets=category_sets,
            decoys=decoys,
            fallbacks=fallbacks,
            fallback_of=fallback_of,
            refreshes=refreshes,
        )
        if signing is not None:
            self.witness = Transcripts(self, party, peers, signing, active=party)
        self.engine = engine.active(parallelism)
        if table.person is not None:
            self.engine.gather(table.person)
        self.engine.start_session(~table.evaluation, self.terms.value_bits, params.vector_outputs)
        self.model: ModelBuilder | FoldModels
        if table.folds:
            self.model = FoldModels(table, params, engine, saved)
        else:
            self.model = ModelBuilder(table, params, engine, saved, callbacks)
        self.acceptances = Acceptances(peers)
        self.columns: OwnColumns
        self._earlier = earlier
        self.refreshes_leaves = refreshes_leaves
        self.consents = PeerConsents(self)
        self.earlier_trees = EarlierTrees(self)
        self.rounds = Rounds(self, paused=paused)
        self._growth: ActiveGrowth | None = None
        """The current tree."""
        for part in (Opening(self, earlier), self.consents, self.earlier_trees, self.rounds):
            self._attach(part)

    @property
    def margins(self) -> NDArray[np.float32] | None:
        """The margins of all rows by the trees so far; None if several models grow."""
        return self.model.margins if isinstance(self.model, ModelBuilder) else None

    @property
    def single_model(self) -> ModelBuilder:
        """The model; a cross-validation has several instead."""
        assert isinstance(self.model, ModelBuilder)
        return self.model

    @property
    def rests(self) -> bool:
        return super().rests or self.state is State.PAUSED

    @property
    def awaits_consent(self) -> bool:
        return bool(self.consents)

    def check(self) -> None:
        if self._growth is not None and self.state in (State.GROWING, State.SPLITTING):
            self._growth.check()

    def grow(self, gradients: Gradients) -> None:
        """Grow a tree from ``gradients``."""
        kind = DecoyGrowth if self.terms.decoys else ActiveGrowth
        self._growth = kind(
            self,
            self.terms,
            self.engine,
            self.acceptances,
            self.model,
            self.columns,
            gradients,
            self.rounds.end_tree,
        )
        self._attach(self._growth)
        if self._growth.comparisons is not None:
            self._attach(self._growth.comparisons)
        self._growth.begin()

    def _on_computation_failed(self, event: ComputationFailed) -> None:
        """Tell all peers of impossible sums, and whose they are."""
        error, running = event.error, self._plans.get(event.ticket)
        if isinstance(error, MessageError) and running is not None and running.about is not None:
            error = running.about.unreadable(str(error))
        if isinstance(error, Inconsistent):
            self._fail(error)
        else:
            super()._on_computation_failed(event)

    def end_refused(self, peer: str, body: SessionRefuse) -> None:
        """End: ``peer`` takes no part."""
        self._refused(peer, body)

    def walked_trees(self, earlier: ActiveShare) -> tuple[Tree, ...]:
        """The trees of ``earlier`` that rows walk down: of those beyond its best iteration, new
        ones continue, and leaves stay as they are."""
        return earlier.grown_trees if self.terms.refreshes else earlier.trees

    def end_refreshed(self, made: ActiveShare, margins: NDArray[np.float32]) -> None:
        """End with the earlier model, whose leaves are now those of ``made``."""
        assert self._earlier is not None
        self.single_model.first_margin = margins
        self.single_model.rewind(0)
        for peer in self.terms.peers:
            self._send(peer, training.SessionFinished(trees=0))
        named = self.terms.model, self.terms.parties
        self._emit(Finish(refreshed_active(self._earlier, made, *named)))

    def end_complete(self) -> None:
        """End with the model."""
        terms = self.terms
        for peer in terms.peers:
            self._send(peer, training.SessionFinished(trees=self.model.next_tree))
        made = self.model.finished(terms.model, terms.parties, self.acceptances.withheld)
        if isinstance(made, ActiveShare):
            columns = columns_by_sets(terms.table, self.columns.bins.cuts)
            table = made.lookup_table.model_copy(update={"category_columns": columns})
            made = made.model_copy(update={"lookup_table": table})
        if self._earlier is not None and not isinstance(made, CrossValidated):
            made = continued_active(self._earlier, made)
        self._emit(Finish(made))

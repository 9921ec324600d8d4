"""How does the label holder open a training with its peers?"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.callbacks import Callbacks
from fedmq.boosting.gradients import most_value_bits
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.params import TrainParams
from fedmq.messages import training
from fedmq.messages.body import SessionRefuse
from fedmq.privacy.engine import Engine
from fedmq.privacy.plan import Values
from fedmq.protocol.events import Start
from fedmq.protocol.machine import Machine, PeerConsents, on, on_message
from fedmq.protocol.records import ActiveTree, Signing
from fedmq.protocol.training.columns import ColumnConstraints
from fedmq.protocol.training.continuation import continuing
from fedmq.protocol.training.fold_models import FoldModels
from fedmq.protocol.training.handshake import Handshake, keyed, opening_of
from fedmq.protocol.training.model_builder import ModelBuilder
from fedmq.protocol.training.states import ACTIVE_TRAINING, KEYS, PEER_SETUP, ActiveTrainingState
from fedmq.protocol.training.tables import ActiveTable
from fedmq.protocol.training.transcripts import Transcripts

__all__ = ["ActiveOpening"]

State = ActiveTrainingState


class ActiveOpening(Machine):
    """Makes keys, sends the terms, and takes what each peer accepts and sets up.

    Raises:
        ConfigError: parameters, engine and table do not fit together.
    """

    TABLE = ACTIVE_TRAINING
    PARTS = (PeerConsents,)
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
        parallelism: int,
        saved: Sequence[ActiveTree],
        signing: Signing | None,
        callbacks: Callbacks | None,
        earlier: ActiveShare | None,
    ) -> None:
        if earlier is not None:
            params = continuing(earlier, params, (party, *peers), table)
        self._earlier = earlier
        engine.check(params)
        table.check_engine(engine)
        super().__init__(State.READY, peers)
        if signing is not None:
            self.witness = Transcripts(self, party, peers, signing, active=party)
        self._party = party
        self._constraints = ColumnConstraints(party, peers, table, params, engine)
        self._model_id = model
        self._parties = (party, *peers)
        self._table = table
        self._params = params
        self._spec = engine
        self._engine = engine.active(parallelism)
        self._engine.start_session(
            ~table.evaluation, most_value_bits(params), params.vector_outputs
        )
        self._bins: BinMatrix
        self._handshake = Handshake(peers)
        self._consents = PeerConsents(self)
        self._attach(self._consents)
        self._model: ModelBuilder | FoldModels
        if table.folds:
            self._model = FoldModels(table, params, engine, saved)
        else:
            self._model = ModelBuilder(table, params, engine, saved, callbacks)

    @property
    def awaits_consent(self) -> bool:
        return bool(self._consents)

    @abstractmethod
    def _opened(self) -> None:
        """All peers are ready."""

    @on(Start)
    def _on_start(self, _: Start) -> None:
        self._run(KEYS, keyed(self._table, self._params, self._model, self._engine), self._open)

    def _open(self, made: tuple[BinMatrix, Values]) -> None:
        self._bins, public = made
        opening = self._opening(public)
        for peer in self.peers:
            self._send(peer, self._opening_for(peer, opening))
        self._set_out_when_ready()

    def _opening_for(self, peer: str, opening: training.TrainingOpen) -> training.TrainingOpen:
        return self._constraints.opening(peer, opening)

    def _opening(self, public: Values) -> training.TrainingOpen:
        return opening_of(
            self._model_id,
            self._table,
            self._params,
            self._model,
            self._spec,
            public,
            self.peers,
        )

    @on_message(training.SessionAccept)
    def _on_accept(self, peer: str, body: training.SessionAccept) -> None:
        self._consents.answered(peer)
        self._handshake.accept(peer, body, self._engine.largest_setup)
        self._set_up(peer)

    @on_message(training.EngineSetup)
    def _on_setup(self, peer: str, body: training.EngineSetup) -> None:
        self._handshake.add(peer, body.payload)
        self._set_up(peer)

    def _set_up(self, peer: str) -> None:
        setup = self._handshake.setup(peer)
        if setup is not None:
            self._run(PEER_SETUP, self._engine.setup(peer, setup), partial(self._peer_ready, peer))

    def _peer_ready(self, peer: str, _: None) -> None:
        self._handshake.mark_ready(peer)
        self._set_out_when_ready()

    def _set_out_when_ready(self) -> None:
        if self._handshake.is_complete:
            self._opened()

    @on_message(SessionRefuse)
    def _on_refuse(self, peer: str, body: SessionRefuse) -> None:
        self._refused(peer, body)

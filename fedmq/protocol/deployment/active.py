"""How does the active party drive a switch? All parties prepare, then all switch."""

from __future__ import annotations

from fedmq.boosting.model.served_forest import ServedForest
from fedmq.boosting.model.tree import Agreed, DisclosedColumns
from fedmq.messages import online
from fedmq.messages.array import Array
from fedmq.messages.body import SessionRefuse
from fedmq.protocol.deployment.states import (
    ACTIVE_DEPLOYMENT,
    ALL_COULD,
    ALL_READY,
    ALL_SERVE,
    ActiveDeploymentState,
)
from fedmq.protocol.events import Finish, Start
from fedmq.protocol.machine import Machine, PeerConsents, on, on_message
from fedmq.protocol.online.options import Mode
from fedmq.protocol.record_columns import columns_of
from fedmq.protocol.sealed_sums import SealedModel

__all__ = ["ActiveDeployment"]


class ActiveDeployment(Machine):
    """The active party's side; finishes once every party serves the model.

    The result is the owners' agreement (:class:`Agreed`). With ``only_asks`` it finishes without a
    result once every party could serve the model, and the name keeps its meaning. ``sealed`` is
    given in mode sealed.
    """

    TABLE = ACTIVE_DEPLOYMENT
    PARTS = (PeerConsents,)
    failed_state = ActiveDeploymentState.FAILED

    def __init__(
        self,
        alias: str,
        served: ServedForest,
        mode: Mode,
        only_asks: bool = False,
        sealed: SealedModel | None = None,
    ) -> None:
        super().__init__(ActiveDeploymentState.READY, tuple(served.asked.values()))
        self._alias = alias
        self._served = served
        self._mode = mode
        self._sealed = sealed
        self.only_asks = only_asks
        self._waiting: set[str] = set()
        self._columns: dict[str, DisclosedColumns] = {}
        self._refusing: list[str] = []
        self._consents = PeerConsents(self)
        self._attach(self._consents)

    @property
    def rests(self) -> bool:
        return super().rests or bool(self._consents)

    @property
    def awaited(self) -> tuple[str, ...]:
        """The parties whose answer is missing."""
        return tuple(sorted(self._waiting))

    def is_done_with(self, peer: str) -> bool:
        return self.state is ActiveDeploymentState.SWITCHING and peer not in self._waiting

    @on(Start)
    def _on_start(self, _: Start) -> None:
        for owner, peer in self._served.asked.items():
            chains = self._served.chains(owner)
            deploy = online.ModelDeploy(
                alias=self._alias,
                model=self._served.share.model_id,
                mode=self._mode,
                left=Array.of(chains.left),
                right=Array.of(chains.right),
                sealed=None if self._sealed is None else self._sealed.terms(peer),
                training=self._served.share.training,
            )
            self._send(peer, deploy)
        self._waiting = set(self.peers)
        self._switch_when_ready()

    @on_message(online.ModelReady)
    def _on_ready(self, peer: str, body: online.ModelReady) -> None:
        owner = self._served.share.parties.index(peer)
        shown = columns_of(peer, body.columns, len(self._served.node_of[owner]))
        self._consents.answered(peer)
        self._discard(peer, self._waiting)
        if shown is not None:
            self._columns[peer] = shown
        if not body.explain:
            self._refusing.append(peer)
        self._switch_when_ready()

    def _switch_when_ready(self) -> None:
        if self._waiting:
            return
        for peer in self.peers:
            self._send(peer, online.ModelDismiss() if self.only_asks else online.ModelSwitch())
        if self.only_asks:
            self._move(ALL_COULD)
            self._emit(Finish(None))
        else:
            self._move(ALL_READY)
            self._waiting = set(self.peers)
            self._finish_when_deployed()

    @on_message(SessionRefuse)
    def _on_refuse(self, peer: str, body: SessionRefuse) -> None:
        self._refused(peer, body, "does not serve the model")

    @on_message(online.ModelDeployed)
    def _on_deployed(self, peer: str, _: online.ModelDeployed) -> None:
        self._discard(peer, self._waiting)
        self._finish_when_deployed()

    def _finish_when_deployed(self) -> None:
        if not self._waiting:
            self._move(ALL_SERVE)
            refusing = tuple(sorted(self._refusing))
            self._emit(Finish(Agreed(columns=self._columns, refusing=refusing)))

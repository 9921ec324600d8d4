"""Giving a name a model to serve, at all parties together: prepare everywhere, then switch."""

from __future__ import annotations

from fedmq.boosting.model.served_forest import ServedForest
from fedmq.messages import online
from fedmq.messages.array import Array
from fedmq.protocol.deployment.states import ACTIVE_DEPLOYMENT, ActiveDeploymentState
from fedmq.protocol.events import Finish, Received, Start
from fedmq.protocol.machine import Machine
from fedmq.protocol.online.options import Mode

__all__ = ["ActiveDeployment"]


class ActiveDeployment(Machine):
    """The label holder's side; finishes with nothing, once every party serves the model.

    With ``only_asks`` it finishes once every party could, and the name keeps its meaning.
    """

    TABLE = ACTIVE_DEPLOYMENT
    failed_state = ActiveDeploymentState.FAILED

    def __init__(
        self, alias: str, served: ServedForest, mode: Mode, only_asks: bool = False
    ) -> None:
        super().__init__(ActiveDeploymentState.READY, tuple(served.asked.values()))
        self._alias = alias
        self._served = served
        self._mode = mode
        self._only_asks = only_asks
        self._waiting: set[str] = set()

    def is_done_with(self, peer: str) -> bool:
        return self.state is ActiveDeploymentState.SWITCHING and peer not in self._waiting

    def _on_start(self, _: Start) -> None:
        for owner, peer in self._served.asked.items():
            chains = self._served.chains(owner)
            deploy = online.ModelDeploy(
                alias=self._alias,
                model=self._served.share.model_id,
                mode=self._mode,
                left=Array.of(chains.left),
                right=Array.of(chains.right),
            )
            self._send(peer, deploy)
        self._waiting = set(self.peers)
        self.state = ActiveDeploymentState.PREPARING
        if not self.peers:
            self._finish()

    def _on_ready(self, event: Received) -> None:
        self._said_by(event.sender, self._waiting)
        if self._waiting:
            return
        for peer in self.peers:
            self._send(peer, online.ModelDismiss() if self._only_asks else online.ModelSwitch())
        if self._only_asks:
            self._finish()
        else:
            self.state = ActiveDeploymentState.SWITCHING
            self._waiting = set(self.peers)

    def _on_refuse(self, event: Received) -> None:
        self._refused(event, "does not serve the model")

    def _on_deployed(self, event: Received) -> None:
        self._said_by(event.sender, self._waiting)
        if not self._waiting:
            self._finish()

    def _finish(self) -> None:
        self.state = ActiveDeploymentState.FINISHED
        self._emit(Finish(None))

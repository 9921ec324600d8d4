"""Giving a name a model to serve, at all parties together: prepare everywhere, then switch."""

from __future__ import annotations

from typing import Any

from fedmq.boosting.served_forest import ServedForest
from fedmq.errors import Refused
from fedmq.messages import online as say
from fedmq.messages.array import Array
from fedmq.messages.body import SessionRefuse
from fedmq.privacy.engine import Computation
from fedmq.protocol.events import ComputationFailed, Finish, Received, Start
from fedmq.protocol.machine import Machine, single
from fedmq.protocol.online_terms import Mode
from fedmq.protocol.states import DEPLOYING, HOSTING, DeployingState, HostingState

__all__ = ["Deploying", "Hosting"]


class Deploying(Machine):
    """The label holder's side; finishes with nothing, once every party serves the model.

    With ``only_asks`` it finishes once every party could, and the name keeps its meaning.
    """

    TABLE = DEPLOYING
    failed_state = DeployingState.FAILED

    def __init__(
        self, alias: str, served: ServedForest, mode: Mode, only_asks: bool = False
    ) -> None:
        super().__init__(DeployingState.READY, tuple(served.asked.values()))
        self._alias = alias
        self._served = served
        self._mode = mode
        self._only_asks = only_asks
        self._waiting: set[str] = set()

    def is_done_with(self, peer: str) -> bool:
        return self.state is DeployingState.SWITCHING and peer not in self._waiting

    def _on_start(self, _: Start) -> None:
        for owner, peer in self._served.asked.items():
            chains = self._served.chains(owner)
            deploy = say.ModelDeploy(
                alias=self._alias,
                model=self._served.share.model_id,
                mode=self._mode,
                left=Array.of(chains.left),
                right=Array.of(chains.right),
            )
            self._send(peer, deploy)
        self._waiting = set(self.peers)
        self.state = DeployingState.PREPARING
        if not self.peers:
            self._finish()

    def _on_ready(self, event: Received) -> None:
        self._said_by(event.sender, self._waiting)
        if self._waiting:
            return
        for peer in self.peers:
            self._send(peer, say.ModelDismiss() if self._only_asks else say.ModelSwitch())
        if self._only_asks:
            self._finish()
        else:
            self.state = DeployingState.SWITCHING
            self._waiting = set(self.peers)

    def _on_refuse(self, event: Received) -> None:
        self._refused(event, "does not serve the model")

    def _on_deployed(self, event: Received) -> None:
        self._said_by(event.sender, self._waiting)
        if not self._waiting:
            self._finish()

    def _finish(self) -> None:
        self.state = DeployingState.FINISHED
        self._emit(Finish(None))


class Hosting(Machine):
    """A feature holder's side; finishes with what is to be served, or with None.

    ``load`` computes that; ``refusal`` is the owner's reason against it, or empty.
    """

    TABLE = HOSTING
    failed_state = HostingState.FAILED

    def __init__(self, peer: str, load: Computation, refusal: str) -> None:
        super().__init__(HostingState.READY, (peer,))
        self._load = load
        self._refusal = refusal
        self._loaded: Any

    def _on_deploy(self, _: Received) -> None:
        if self._refusal:
            self._send(self.peers[0], SessionRefuse(reason=self._refusal))
            self._fail(Refused(self._refusal), but=self.peers[0])
            return
        self.state = HostingState.LOADING
        self._run(single(self._load), self._with_share)

    def _with_share(self, loaded: Any) -> None:
        self._loaded = loaded
        self.state = HostingState.LOADED
        self._send(self.peers[0], say.ModelReady())

    def _on_unprepared(self, event: ComputationFailed) -> None:
        # What went wrong may quote this party's data: that is for its own eyes.
        reason = "its own share or data could not be loaded; its log says why"
        self._send(self.peers[0], SessionRefuse(reason=reason))
        self._fail(event.error, but=self.peers[0])

    def _on_switch(self, _: Received) -> None:
        self.state = HostingState.FINISHED
        self._emit(Finish(self._loaded))  # first: what is said waits until that is kept
        self._send(self.peers[0], say.ModelDeployed())

    def _on_dismiss(self, _: Received) -> None:
        self.state = HostingState.FINISHED
        self._emit(Finish(None))

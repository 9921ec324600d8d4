"""How a feature holder makes a model ready to serve."""

from __future__ import annotations

from typing import Any

from fedmq.computation import Computation
from fedmq.errors import Refused
from fedmq.messages import online
from fedmq.messages.body import SessionRefuse
from fedmq.privacy.plan import single
from fedmq.protocol.deployment.states import PASSIVE_DEPLOYMENT, PassiveDeploymentState
from fedmq.protocol.events import ComputationFailed, Finish, Received
from fedmq.protocol.machine import Machine

__all__ = ["PassiveDeployment"]


class PassiveDeployment(Machine):
    """A feature holder's side; finishes with what is to be served, or with None.

    ``load`` computes that; ``refusal`` is the owner's reason against it, or empty.
    """

    TABLE = PASSIVE_DEPLOYMENT
    failed_state = PassiveDeploymentState.FAILED

    def __init__(self, peer: str, load: Computation, refusal: str) -> None:
        super().__init__(PassiveDeploymentState.READY, (peer,))
        self._load = load
        self._refusal = refusal
        self._loaded: Any

    def _on_deploy(self, _: Received) -> None:
        if self._refusal:
            self._send(self.peers[0], SessionRefuse(reason=self._refusal))
            self._fail(Refused(self._refusal), but=self.peers[0])
            return
        self.state = PassiveDeploymentState.LOADING
        self._run(single(self._load), self._with_share)

    def _with_share(self, loaded: Any) -> None:
        self._loaded = loaded
        self.state = PassiveDeploymentState.LOADED
        self._send(self.peers[0], online.ModelReady())

    def _on_unprepared(self, event: ComputationFailed) -> None:
        # What went wrong may quote this party's data: that is for its own eyes.
        reason = "its own share or data could not be loaded; its log says why"
        self._send(self.peers[0], SessionRefuse(reason=reason))
        self._fail(event.error, but=self.peers[0])

    def _on_switch(self, _: Received) -> None:
        self.state = PassiveDeploymentState.FINISHED
        self._emit(Finish(self._loaded))  # first: what is said waits until that is kept
        self._send(self.peers[0], online.ModelDeployed())

    def _on_dismiss(self, _: Received) -> None:
        self.state = PassiveDeploymentState.FINISHED
        self._emit(Finish(None))

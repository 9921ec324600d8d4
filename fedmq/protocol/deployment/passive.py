"""How does a passive party make a model ready to serve?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedmq.computation import Computation
from fedmq.errors import FedmqError, Refused
from fedmq.messages import online
from fedmq.privacy.plan import single
from fedmq.protocol.deployment.states import PASSIVE_DEPLOYMENT, SHARE, PassiveDeploymentState
from fedmq.protocol.events import ComputationFailed, Finish
from fedmq.protocol.machine import OTHER_TRAINING, Machine, OwnConsent, on_message, turn_down

__all__ = ["PassiveDeployment"]


class PassiveDeployment(Machine):
    """A passive party's side; finishes with the share to serve, or with None.

    ``load`` computes the share. ``refusal``: the owner's reason against it, or empty. ``ready``
    makes the message to the active party from the loaded share. ``consent_within``: seconds that
    this party's owner has to answer, before anything is loaded; 0: the owner is not asked.
    """

    TABLE = PASSIVE_DEPLOYMENT
    PARTS = (OwnConsent,)
    failed_state = PassiveDeploymentState.FAILED

    def __init__(
        self,
        peer: str,
        load: Computation,
        refusal: str,
        ready: Callable[[Any], online.ModelReady] = lambda _: online.ModelReady(),
        consent_within: int = 0,
    ) -> None:
        super().__init__(PassiveDeploymentState.READY, (peer,))
        self._load = load
        self._refusal = refusal
        self._ready = ready
        self._consent = OwnConsent(
            self, consent_within, self._prepare, lambda error: self._refuse(error, str(error))
        )
        self._attach(self._consent)
        self._loaded: Any
        self._training = ""

    @property
    def rests(self) -> bool:
        return super().rests or self.state is PassiveDeploymentState.ASKING

    @on_message(online.ModelDeploy)
    def _on_deploy(self, _: str, body: online.ModelDeploy) -> None:
        self._training = body.training
        if self._refusal:
            self._refuse(Refused(self._refusal), self._refusal)
        else:
            self._consent.begin(self.peers[0])

    def _prepare(self) -> None:
        self._run(SHARE, single(self._load), self._with_share)

    def _with_share(self, loaded: Any) -> None:
        if self._training and loaded.share.training != self._training:
            self._refuse(Refused(OTHER_TRAINING), OTHER_TRAINING)
            return
        self._loaded = loaded
        self._send(self.peers[0], self._ready(loaded))

    def _on_computation_failed(self, event: ComputationFailed) -> None:
        if self.state is PassiveDeploymentState.LOADING:
            # The error may quote this party's data, so the peer does not read it.
            reason = "its own share or data could not be loaded; its log says why"
            self._refuse(event.error, reason)
        else:
            super()._on_computation_failed(event)

    def _refuse(self, error: FedmqError, reason: str) -> None:
        turn_down(self, self.peers[0], reason)
        self._fail(error, except_for=self.peers[0])

    @on_message(online.ModelSwitch)
    def _on_switch(self, _: str, __: online.ModelSwitch) -> None:
        self._emit(Finish(self._loaded))  # first: the message waits until the share is kept
        self._send(self.peers[0], online.ModelDeployed())

    @on_message(online.ModelDismiss)
    def _on_dismiss(self, _: str, __: online.ModelDismiss) -> None:
        self._emit(Finish(None))

"""What is a service, and what do all services work with?

`KeptModelsService` answers from the model shares alone: it opens no session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from fedmq.boosting.model.share import ActiveShare
from fedmq.errors import ConfigError, DaemonError, PartyLeft
from fedmq.messages.body import Body
from fedmq.messages.envelope import Header
from fedmq.party.compute.pool import ComputePool
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.party import PartyFile
from fedmq.party.consent.owner_consent import OwnerConsent, SessionOwner
from fedmq.party.consent.person import Person
from fedmq.party.consent.policy_consent import PolicyConsent
from fedmq.party.data.descriptions import (
    compare_models,
    describe_model,
    describe_tree,
    list_models,
)
from fedmq.party.identity.sealer import Sealer
from fedmq.party.sessions.recovery import Opening
from fedmq.party.sessions.sessions import OnProgress, RunningSession, Sessions
from fedmq.party.store.documents import ModelStore
from fedmq.party.store.journal import NULL_JOURNAL, Journal, SessionStore
from fedmq.protocol.machine import Machine

__all__ = ["Command", "KeptModelsService", "PartyContext", "Service", "answered", "person_of"]

T = TypeVar("T")

Command = Callable[[Mapping[str, Any], OnProgress], Awaitable[Any]]
"""Carries out a request and reports progress; its value is the result.

``person`` of the request is who gives it: set by what took it, never by the request itself.
"""


def person_of(request: Mapping[str, Any]) -> Person:
    """The person who gives the command ``request``."""
    person = request["person"]
    assert isinstance(person, Person)
    return person


@dataclass(slots=True)
class PartyContext:
    """One party's settings, shares, workers and sessions; ``config`` changes with the policy."""

    config: PartyFile
    federation: Federation
    model_store: ModelStore
    pool: ComputePool
    sessions: Sessions
    consent: PolicyConsent
    owner_consent: OwnerConsent
    session_store: SessionStore
    sealer: Sealer

    @property
    def party(self) -> str:
        """This party's name."""
        return self.config.party

    @property
    def is_active(self) -> bool:
        """Whether this party holds the label."""
        return self.party == self.federation.active

    def require_active(self, what: str) -> None:
        """Raise DaemonError unless this party holds the label."""
        if not self.is_active:
            raise DaemonError(
                f"{self.party} holds no label: ask the daemon of {self.federation.active} to {what}"
            )

    def require_parties(self, share: ActiveShare) -> None:
        """Raise PartyLeft if ``share`` needs a party that has left."""
        gone = [party for party in share.asked if party not in self.federation.parties]
        if gone:
            raise PartyLeft(
                f"model {share.model_id} cannot be used without {', '.join(gone)}, which has "
                "left the federation; have one without it with: fedmq models without"
            )

    def host(
        self,
        header: Header,
        purpose: str,
        model: str,
        machine: Machine,
        journal: Journal = NULL_JOURNAL,
    ) -> RunningSession:
        """Take part in the session of ``header``, about which this party's owner may be asked.

        The audit log notes its end; a question that then waits is withdrawn.
        """
        running = self.sessions.open(
            header.session,
            header.attempt,
            purpose,
            model,
            machine,
            journal=journal,
            owner=SessionOwner(self.owner_consent, header.session),
        )
        self.consent.audit.follow(header, running.runner.outcome, running.traffic)
        self.owner_consent.follow(header.session, running.runner.outcome)
        return running


class Service:
    """One kind of session: the owner's commands for it, and how this party joins it."""

    def __init__(self, context: PartyContext) -> None:
        self.context = context

    @property
    def opened_sessions(self) -> Mapping[type[Body], Opening]:
        """How to join a session that the active party opens, by the body that opens it."""
        return {}

    @property
    def commands(self) -> Mapping[str, Command]:
        """The owner's commands over the control socket, by name."""
        return {}


async def answered(question: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
    """Wait for ``question``: the future's ``result()`` returns the value, or raises the refusal.

    A machine reads it when it takes the opening: consent is recorded by then, and machines do
    not wait.
    """
    answer = asyncio.ensure_future(question)
    await asyncio.wait([answer])
    return answer


class KeptModelsService(Service):
    """Describes models, as far as this party may see them."""

    @property
    def commands(self) -> Mapping[str, Command]:
        return {
            "models": self._models,
            "model": self._model,
            "tree": self._tree,
            "compare": self._compare,
        }

    async def _models(self, _: Mapping[str, Any], __: OnProgress) -> Any:
        listing = list_models.bind(self.context.config.state, self.context.is_active)
        return await self.context.pool.run(listing)

    async def _model(self, request: Mapping[str, Any], _: OnProgress) -> Any:
        state, active = self.context.config.state, self.context.is_active
        describe = describe_model.bind(state, active, self._known(request["model"]))
        return await self.context.pool.run(describe)

    async def _tree(self, request: Mapping[str, Any], _: OnProgress) -> Any:
        self.context.require_active("show a tree")
        model, number = self._known(request["model"]), int(request["tree"])
        return await self.context.pool.run(
            describe_tree.bind(self.context.config.state, model, number)
        )

    async def _compare(self, request: Mapping[str, Any], _: OnProgress) -> Any:
        one, other = self._known(request["one"]), self._known(request["other"])
        state, active = self.context.config.state, self.context.is_active
        return await self.context.pool.run(compare_models.bind(state, active, one, other))

    def _known(self, model: object) -> str:
        """Return ``model`` if it is a model's id: nothing else becomes part of a path."""
        if model not in self.context.model_store.ids():
            raise ConfigError(
                f"model {str(model)[:64]!r} has no share here; see: fedmq models list"
            )
        return str(model)

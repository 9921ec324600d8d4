"""``fedmq.connect``: a program beside a party's daemon asks what commands ask.

It talks to the daemon by the socket in the party's state folder, as commands do, and so needs to
run as the daemon's own user.
"""

from __future__ import annotations

import asyncio
import getpass
import html
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import EllipsisType
from typing import Any, Literal, Self, Unpack, overload

from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError
from fedmq.evaluation.screening import Screen
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.configuration.party import PartyFile
from fedmq.party.consent.terms import asked_in_words, terms_in_words
from fedmq.party.operations.control import request_daemon
from fedmq.workbench.daemon import LocalDaemon
from fedmq.workbench.model import PartyModel, PartyModels
from fedmq.workbench.run import Run, Watcher
from fedmq.workbench.search import Found
from fedmq.workbench.served import ServedParty
from fedmq.workbench.sessions import JobKeys, ScreenKeys, Sessions

__all__ = ["WATCHED_BY", "AsyncParty", "InboxRequest", "Party", "connect"]

WATCHED_BY: list[Callable[[Party, TrainingJob], Watcher]] = []
"""Each makes a watcher of every training and cross-validation that this program begins."""


@overload
def connect(party: str | Path) -> Party: ...


@overload
def connect(party: str, *, token: str | None, ca: str | Path | None = None) -> ServedParty: ...


def connect(
    party: str | Path,
    *,
    token: str | EllipsisType | None = ...,
    ca: str | Path | None = None,
) -> Party | ServedParty:
    """The party whose configuration file is ``party``; its daemon runs on this machine.

    ``with fedmq.connect(...) as bank:``, or ``async with``, whose methods are coroutines.

    With ``token`` the party whose daemon serves HTTP at the address ``party``, from any machine;
    None where it asks for none. Such a party scores, and can no more. ``ca``: the authority, in
    PEM, that has signed its certificate.

    Raises:
        ConfigError: the file or the address is wrong, or the daemon is another user's.
        DaemonAway: no daemon runs.
        DaemonError: nobody answers at the address, or the token is wrong.
    """
    if token is not ...:
        return ServedParty(str(party), token, ca)
    if str(party).startswith(("https://", "http://")):
        raise ConfigError(f"{party}: name a token of the party's [http] section: token=...")
    path = Path(party)
    config, _ = PartyFile.read(path)
    request_daemon(config.state, {"do": "health"})
    return Party(path, config)


class Party(Sessions[PartyModel]):
    """A party by its daemon. What its methods raise is what the commands of the name say."""

    def __init__(self, path: Path, config: PartyFile) -> None:
        super().__init__(LocalDaemon(config.state), path)
        self.file = path
        self.name = config.party
        self.models = PartyModels(path)
        """Its models by name."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass  # a training belongs to the daemon, and goes on

    async def __aenter__(self) -> AsyncParty:
        return AsyncParty(self)

    async def __aexit__(self, *_: object) -> None:
        pass

    @property
    def inbox(self) -> list[InboxRequest]:
        """The requests that wait for this owner's consent."""
        found = self.ask("inbox")
        return [InboxRequest(self, asked) for asked in found if asked["state"] == "waiting"]

    def _watchers(self, job: TrainingJob) -> list[Watcher]:
        return [watcher_of(self, job) for watcher_of in WATCHED_BY]

    def _model_of(self, result: Mapping[str, Any]) -> PartyModel:
        return self.models[result["model"]]

    def __repr__(self) -> str:
        return f"<Party {self.name} of {self.file}>"

    def _repr_html_(self) -> str:
        status = self.status()
        link = "connected" if status["connected"] else f"not connected: {status['broker']}"
        facts = {
            "party": f"{self.name}, {status['role']} in {status['federation']}",
            "broker": link,
            "models": status["models"],
            "sessions": len(status["sessions"]),
            "asked": status["asked"],
            **{f"warning {place}": text for place, text in enumerate(status["warnings"], 1)},
        }
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(fact))}</td></tr>"
            for name, fact in facts.items()
        )
        return f"<table>{rows}</table>"


class InboxRequest:
    """A session that another party asks for, and that waits for this owner."""

    def __init__(self, party: Party, described: Mapping[str, Any]) -> None:
        self._party = party
        self.id: str = described["request"]
        self.until: str = described["until"]
        """When it is taken for refused, in ISO 8601."""
        self.asks = asked_in_words(described)
        self.terms: dict[str, str] = dict(terms_in_words(described))
        """What would be done, by heading."""

    def approve(self) -> None:
        """Let its session go on."""
        self._party.ask("approve", request=self.id, by=getpass.getuser(), diff="")

    def refuse(self, reason: str = "") -> None:
        """End its session; the asking party reads the ``reason``."""
        self._party.ask("refuse", request=self.id, by=getpass.getuser(), reason=reason)

    def __repr__(self) -> str:
        return f"<InboxRequest {self.id}: {self.asks}, until {self.until}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(about)}</th><td>{html.escape(what)}</td></tr>"
            for about, what in self.terms.items()
        )
        return (
            f"<p>{html.escape(self.asks)}, until {html.escape(self.until)}</p><table>{rows}</table>"
        )


class AsyncParty:
    """As `Party`, for asyncio: nothing here blocks the event loop."""

    def __init__(self, party: Party) -> None:
        self._party = party
        self.name = party.name

    async def ask(self, command: str, **request: Any) -> Any:
        """As `Party.ask`."""
        return await asyncio.to_thread(self._party.ask, command, **request)

    async def status(self) -> dict[str, Any]:
        """As `Party.status`."""
        return await asyncio.to_thread(self._party.status)

    async def align(
        self,
        name: str,
        *,
        parties: Sequence[str] | None = None,
        join: Literal["inner", "left"] = "inner",
        at_least: Sequence[str] = (),
    ) -> dict[str, Any]:
        """As `Party.align`."""
        return await asyncio.to_thread(
            self._party.align, name, parties=parties, join=join, at_least=at_least
        )

    async def count_shared(
        self, name: str, *, parties: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """As `Party.count_shared`."""
        return await asyncio.to_thread(self._party.count_shared, name, parties=parties)

    async def screen(self, name: str, **keys: Unpack[ScreenKeys]) -> Screen:
        """As `Party.screen`."""
        return await asyncio.to_thread(self._party.screen, name, **keys)

    async def train(
        self,
        params: TrainParams | Mapping[str, Any] | None = None,
        *,
        job: str | Path | None = None,
        **keys: Unpack[JobKeys],
    ) -> Run[PartyModel]:
        """As `Party.train`; ``await`` the run for its model."""
        return await asyncio.to_thread(self._party.train, params, job=job, **keys)

    async def cv(
        self,
        params: TrainParams | Mapping[str, Any] | None = None,
        *,
        nfold: int | None = None,
        job: str | Path | None = None,
        **keys: Unpack[JobKeys],
    ) -> Run[Any]:
        """As `Party.cv`; ``await`` the run for its figures."""
        return await asyncio.to_thread(self._party.cv, params, nfold=nfold, job=job, **keys)

    async def search(
        self,
        over: Mapping[str, str | Sequence[str | float | int | bool]],
        params: TrainParams | Mapping[str, Any] | None = None,
        *,
        trials: int = 20,
        nfold: int | None = None,
        seed: int = 0,
        job: str | Path | None = None,
        **keys: Unpack[JobKeys],
    ) -> Found:
        """As `Party.search`."""
        found = partial(self._party.search, over, params, trials=trials, nfold=nfold, seed=seed)
        return await asyncio.to_thread(found, job=job, **keys)

    async def follow(self, session: str) -> Run[PartyModel]:
        """As `Party.follow`."""
        return await asyncio.to_thread(self._party.follow, session)

    async def inbox(self) -> list[InboxRequest]:
        """As `Party.inbox`."""
        return await asyncio.to_thread(lambda: self._party.inbox)

    async def predict(self, model: str, ids: Any) -> Any:
        """As `PartyModel.predict` of the model of that name."""
        return await asyncio.to_thread(lambda: self._party.models[model].predict(ids))

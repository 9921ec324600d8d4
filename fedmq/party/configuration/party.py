"""``party.toml``: one party's own settings. It holds secrets and stays at home."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator

from fedmq.errors import ConfigError
from fedmq.messages.envelope import PartyName
from fedmq.party.configuration.compute import ComputeSection
from fedmq.party.configuration.data import DataSection
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.functions import FunctionsSection
from fedmq.party.configuration.http import HttpSection
from fedmq.party.configuration.online import OnlineSection
from fedmq.party.configuration.policy import PolicySection
from fedmq.party.configuration.telemetry import TelemetrySection
from fedmq.party.configuration.tls import TlsSection
from fedmq.party.configuration.toml_file import FilePath, Section, read_toml
from fedmq.protocol.session import RetryPolicy
from fedmq.transport.rabbitmq.address import BrokerAddress

__all__ = ["BROKER_VARIABLE", "PartyFile"]

BROKER_VARIABLE = "FEDMQ_BROKER"
"""Environment variable that overrides ``broker``: another host name inside containers."""


def _url(url: str, key: str = "broker") -> str:
    try:
        BrokerAddress.parse(url)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None
    return url


def _compute(value: object) -> object:
    return {"dask": value} if isinstance(value, str) else value


class PartyFile(Section):
    """One party of a federation: its broker account, its data, its state folder, its policy."""

    file = "party file"

    party: PartyName
    """This party's name, which is also its user's on the broker."""
    federation: FilePath
    """The federation file, the same at every party."""
    broker: Annotated[str, AfterValidator(_url)]
    """The broker's URL; the environment variable FEDMQ_BROKER overrides it."""
    tls: TlsSection | None = None
    """For an ``amqps://`` broker with an authority of its own."""
    state: FilePath = Path("state")
    """The folder of model shares, running sessions, what the daemon remembers, and its socket."""
    keys: FilePath = Path("keys.json")
    """This party's private keys; used when the federation file holds the parties' public ones."""
    data: DataSection
    """The rows to learn from."""
    serving: DataSection | None = None
    """Where the rows to predict are looked up; ``data`` when left out."""
    functions: FunctionsSection = FunctionsSection()
    """The label holder's own objectives and metrics."""
    compute: Annotated[ComputeSection, BeforeValidator(_compute)] = ComputeSection()
    """The arithmetic, or the ``dask://`` address of a cluster for it."""
    policy: PolicySection = PolicySection()
    """What this party takes part in."""
    recordings: FilePath | None = None
    """A folder where all that this party says and hears is kept in the clear, for fedmq audit."""
    retry: RetryPolicy = RetryPolicy()
    """When messages are sent again, in seconds, and when a peer counts as lost."""
    online: OnlineSection = OnlineSection()
    """Scores that somebody waits for."""
    http: HttpSection | None = None
    """Health, metrics and predictions over HTTP; not served when left out."""
    telemetry: TelemetrySection | None = None
    """OpenTelemetry traces of this party's sessions; none are made when left out."""
    wait_for_broker: bool = False
    """Start also while the broker is out of reach, and go on trying; otherwise refuse to start."""

    def changed_keys(self, newer: PartyFile) -> list[str]:
        """The keys that differ in ``newer`` and that only a restart of the daemon reads."""
        return [
            name
            for name in PartyFile.model_fields
            if name != "policy" and getattr(self, name) != getattr(newer, name)
        ]

    @classmethod
    def read(cls, path: Path) -> tuple[Self, Federation]:
        """The file and the federation file it points to.

        Raises:
            ConfigError: naming file and key, also where the two do not fit together.
        """
        party = read_toml(path, cls)
        if BROKER_VARIABLE in os.environ:
            url = _url(os.environ[BROKER_VARIABLE], BROKER_VARIABLE)
            party = party.model_copy(update={"broker": url})
        federation = Federation.read(party.federation)
        if party.party not in federation.parties:
            raise ConfigError(
                f"{path}: party: {party.party!r} is not among the parties of "
                f"{party.federation}: {', '.join(federation.parties)}"
            )
        if party.party == federation.active and party.data.label is None:
            raise ConfigError(f"{path}: data.label: the active party's label column is missing")
        if party.party != federation.active and party.data.label is not None:
            raise ConfigError(
                f"{path}: data.label: only {federation.active} holds a label; "
                "use ignore to leave a column out"
            )
        if party.party != federation.active and party.functions != FunctionsSection():
            raise ConfigError(
                f"{path}: functions: only {federation.active} has objectives and metrics"
            )
        if party.serving is not None and party.serving.normalise != party.data.normalise:
            raise ConfigError(
                f"{path}: serving.normalise: ids are normalised as under data: "
                f"{list(party.data.normalise)}"
            )
        return party, federation

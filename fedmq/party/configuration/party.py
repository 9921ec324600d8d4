"""``party.toml``: one party's own settings. It holds secrets and stays at home."""

from __future__ import annotations

import importlib
import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from fedmq.errors import ConfigError, DataError, FedmqError, raised_in_words
from fedmq.messages.fields import PartyName
from fedmq.party.configuration.data import DataSection
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.http import HttpSection
from fedmq.party.configuration.online import OnlineSection
from fedmq.party.configuration.policy import PolicySection
from fedmq.party.configuration.toml_file import FilePath, Section, read_toml
from fedmq.protocol.retry_policy import RetryPolicy
from fedmq.transport.rabbitmq.address import BrokerAddress

__all__ = [
    "BROKER_VARIABLE",
    "ComputeSection",
    "FunctionsSection",
    "NamedFunction",
    "PartyFile",
    "TelemetrySection",
    "TlsSection",
    "dask_address",
]

_DASK_SCHEME = "dask://"
_BYTE_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)

BROKER_VARIABLE = "FEDMQ_BROKER"
"""Environment variable that overrides ``broker``: another host name inside containers."""


class TlsSection(Section):
    """PEM files; with ``certificate`` and ``key`` the login is by RabbitMQ's mechanism EXTERNAL."""

    ca: FilePath
    """The authority that signed the broker's certificate."""
    certificate: FilePath | None = None
    """This party's own certificate, with which it logs in without a password."""
    key: FilePath | None = None
    """The private key of that certificate."""

    @model_validator(mode="after")
    def _together(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together; one of them is missing")
        return self

    def context(self) -> ssl.SSLContext:
        """The files as a context for connections; raises ConfigError where one cannot be used."""
        for path in (self.ca, self.certificate, self.key):
            try:
                if path is not None:
                    path.read_bytes()
            except FileNotFoundError:
                raise ConfigError(f"tls: {path}: there is no such file") from None
            except OSError as error:
                raise ConfigError(f"tls: {path}: cannot be read: {error.strerror}") from None
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except ssl.SSLError:
            raise ConfigError(f"tls.ca: {self.ca} holds no certificate in PEM") from None
        try:
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except ssl.SSLError:
            raise ConfigError(
                f"tls: {self.certificate} and {self.key} are no certificate and its key in PEM"
            ) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context


def _bytes(text: str) -> str:
    number, _, unit = text.partition(" ")
    if unit not in _BYTE_UNITS or not number.replace(".", "", 1).isdigit():
        raise ValueError(f"{text!r} is no size; write a number, a space, and KB, MB, GB or TB")
    return text


def dask_address(url: str) -> str:
    """``dask://host:port`` as Dask's own address; ``dask://tls://host:port`` keeps its scheme.

    Raises:
        ValueError: the URL is none.
    """
    rest = url.removeprefix(_DASK_SCHEME)
    if rest == url or ":" not in rest:
        raise ValueError(f"{url!r} is no address of a Dask scheduler; write dask://host:8786")
    return rest if "://" in rest else f"tcp://{rest}"


def _dask(url: str) -> str:
    dask_address(url)
    return url


class ComputeSection(Section):
    """Worker processes for the arithmetic, and the memory for what they share.

    All cores and all memory when left out. Ciphertexts beyond ``memory`` ("2 GB") lie in files in
    the party's state folder while a tree grows.
    """

    workers: Annotated[int, Field(ge=1)] | None = None
    """Worker processes; one per core when left out."""
    dask: Annotated[str, AfterValidator(_dask)] | None = None
    """A Dask scheduler, whose workers compute instead: written ``compute = "dask://…"``."""
    memory: Annotated[str, AfterValidator(_bytes)] | None = None
    """Memory for what they share, such as "2 GB"; what goes beyond lies in the state folder."""

    @property
    def memory_bytes(self) -> int | None:
        """``memory`` as a number."""
        if self.memory is None:
            return None
        number, _, unit = self.memory.partition(" ")
        return int(float(number) * _BYTE_UNITS[unit])


@dataclass(frozen=True, slots=True)
class NamedFunction:
    """The function ``reference``, which ``key`` of a party's file names; called as itself.

    It is imported where it is called: a worker process needs no more than the name.
    """

    key: str
    reference: str

    def __call__(self, *arguments: Any) -> Any:
        """The function's result.

        Raises:
            ConfigError: there is no such function.
            DataError: it raises an exception.
        """
        function = self.load()
        try:
            return function(*arguments)
        except FedmqError:
            raise
        except Exception as error:
            why = raised_in_words(error)
            raise DataError(f"{self.key}: {self.reference} raised, in {why}") from error

    def load(self) -> Callable[..., Any]:
        """The function itself.

        Raises:
            ConfigError: it cannot be imported, or is none.
        """
        module, _, name = self.reference.partition(":")
        try:
            function = getattr(importlib.import_module(module), name, None)
        except Exception as error:  # an imported module may raise anything
            raise ConfigError(
                f"{self.key}: module {module} cannot be imported where this party computes: {error}"
            ) from error
        if not callable(function):
            raise ConfigError(f"{self.key}: module {module} has no function {name!r}")
        loaded: Callable[..., Any] = function
        return loaded


def _reference(reference: str) -> str:
    """``reference``; ValueError where it names no function of a module."""
    if _REFERENCE.fullmatch(reference) is None:
        raise ValueError(f"{reference!r} names no function; write package.module:function")
    return reference


_References = Mapping[str, Annotated[str, AfterValidator(_reference)]]


class FunctionsSection(Section):
    """Functions of Python that a job may name; they are imported where this party computes."""

    obj: _References = Field(default_factory=dict)
    """Objectives, as `xgboost.train` takes them, such as `{ focal = "losses:focal" }`."""
    custom_metric: _References = Field(default_factory=dict)
    """Metrics, as `xgboost.train` takes them, such as `{ profit = "losses:profit" }`."""

    def named(self, kind: str, name: str | None) -> NamedFunction | None:
        """The function of this ``name``; ``kind`` is ``obj`` or ``custom_metric``.

        Raises:
            ConfigError: there is none of that name.
        """
        if name is None:
            return None
        references: Mapping[str, str] = getattr(self, kind)
        if name not in references:
            known = ", ".join(references) or "none"
            raise ConfigError(
                f"{kind} = {name!r}: functions.{kind} of this party's file has no such name, "
                f"but {known}"
            )
        return NamedFunction(f"functions.{kind}.{name}", references[name])


class TelemetrySection(Section):
    """Needs the extra ``fedmq[otel]``. The collector is this party's own, or one they share."""

    endpoint: Annotated[str, Field(pattern=r"^https?://[^/]+")]
    """A collector that takes OTLP over HTTP, such as ``http://127.0.0.1:4318/v1/traces``."""
    scores: Annotated[float, Field(ge=0, le=1)] = 1.0
    """The share of online batches that is traced; the same ones where parties say the same."""


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
    keys_passphrase: tuple[str, ...] = ()
    """A command whose output is the passphrase of the keys, or the PIN of their token; without it
    ``FEDMQ_KEYS_PASSPHRASE`` is."""
    requests: FilePath = Path("requests")
    """The folder where requests of newcomers wait (``*.request.json``) until they are let in."""
    data: DataSection
    """The rows to learn from."""
    serving: DataSection | None = None
    """Where the rows to predict are looked up; ``data`` when left out."""
    functions: FunctionsSection = FunctionsSection()
    """The active party's own objectives and metrics."""
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
        if party.party == federation.active and party.policy.features is not None:
            raise ConfigError(
                f"{path}: policy.features: says what a passive party shows of itself; the active "
                "party's own columns are named by features or ignore in [data]"
            )
        if party.serving is not None and party.serving.normalise != party.data.normalise:
            raise ConfigError(
                f"{path}: serving.normalise: ids are normalised as under data: "
                f"{list(party.data.normalise)}"
            )
        return party, federation

"""``fedmq.connect("https://...", token=...)``: a party from another machine, by its HTTP API.

The API scores and tells what is served, and with a token of ``operators`` it begins sessions. All
else a daemon takes from its own machine alone.
"""

from __future__ import annotations

import html
import ipaddress
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.client import Client
from fedmq.errors import ConfigError, DataError, UnknownModel
from fedmq.workbench.asked_model import AskedModel, as_array, ids_of
from fedmq.workbench.daemon import HttpDaemon
from fedmq.workbench.sessions import Sessions

__all__ = ["ServedModel", "ServedModels", "ServedParty"]

_SECONDS = 60.0
_FILE = Path("party.toml")  # of the other machine; a job names one


class ServedParty(Sessions[AskedModel]):
    """The active party whose daemon serves HTTP at ``url``.

    Sessions take a token of ``operators`` in ``[http]`` of the party's file.

    Raises:
        ConfigError: the address is none, or would show the token to the network.
        DaemonError: nobody answers, or the token is wrong.
    """

    def __init__(self, url: str, token: str | None, ca: str | Path | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url}: is no address; write https://bank.example:8470")
        if token and parts.scheme == "http" and not _is_this_machine(parts.hostname):
            raise ConfigError(f"{url}: would show the token to the network; write https://")
        self.url = url.rstrip("/")
        self._client = Client(url, token, seconds=_SECONDS, ca=ca)
        super().__init__(HttpDaemon(self._client), _FILE)
        self.models = ServedModels(self._client)
        """What it serves, by the names under which it does and by the models' own."""
        try:
            self.serving()
        except BaseException:
            self._client.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    if not TYPE_CHECKING:  # for type checkers every name would exist

        def __getattr__(self, name: str) -> Any:
            _refuse(self, name, "fedmq.workbench.connection", "Party")

    def _model_of(self, result: Mapping[str, Any]) -> AskedModel:
        return AskedModel(self._daemon, result["model"])

    def serving(self) -> dict[str, Any]:
        """What is under way, who is away, and what has happened: ``fedmq serving --json``."""
        return self._client.serving()

    def __repr__(self) -> str:
        return f"<ServedParty {self.url}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(model.model)}</td></tr>"
            for name, model in self.models.items()
        )
        return f"<table>{rows}</table>"


class ServedModel:
    """The model that a daemon serves under ``name``; ``model`` is its id."""

    def __init__(self, client: Client, name: str, model: str) -> None:
        self._client = client
        self.name = name
        self.model = model

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            _refuse(self, name, "fedmq.workbench.model", "PartyModel")

    def predict(
        self,
        ids: ArrayLike,
        *,
        output_margin: bool = False,
        strict: bool = False,
        base_margin: ArrayLike | None = None,
    ) -> NDArray[np.float64]:
        """As `PartyModel.predict`, by what is served: within a minute, and the service's limits.

        Raises:
            DataError: no id is known, there are too many for one request, or ``strict`` misses one.
            Overloaded, PeerSilent: ask again later.
        """
        asked = ids_of(ids)
        margins = None if base_margin is None else np.asarray(base_margin, np.float64).tolist()
        found = self._client.predict(
            asked,
            model=self.name,
            output="margin" if output_margin else "prediction",
            base_margin=margins,
        )
        missing = [name for name, score in zip(asked, found.scores, strict=True) if score is None]
        if strict and missing:
            raise DataError(f"{len(missing)} of the ids have no score, such as {missing[0]!r}")
        return as_array(found.scores)

    def __repr__(self) -> str:
        return f"<ServedModel {self.name}: {self.model}>"


class ServedModels(Mapping[str, ServedModel]):
    """The models that a daemon serves now, by the names under which it does and by their own."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getitem__(self, name: str) -> ServedModel:
        served = self._client.models()
        if name not in served:
            known = ", ".join(served) or "none yet"
            raise UnknownModel(f"no model is served as {name!r}; there are: {known}")
        return ServedModel(self._client, name, served[name]["model"])

    def __iter__(self) -> Iterator[str]:
        return iter(self._client.models())

    def __len__(self) -> int:
        return len(self._client.models())

    def __repr__(self) -> str:
        return f"<served models: {', '.join(self) or 'none yet'}>"


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refuse(asked: object, name: str, module: str, local: str) -> None:
    """AttributeError for ``name``; it says so if ``local``, as on the daemon's machine, has it."""
    from importlib import import_module

    own = type(asked).__name__
    if not name.startswith("_") and name in vars(getattr(import_module(module), local)):
        raise AttributeError(
            f"{own} has no {name}: a daemon takes that from its own machine alone; there: "
            'fedmq.connect("party.toml")'
        )
    raise AttributeError(f"{own} has no {name}")

"""A client for the scores that the active party's daemon serves over HTTP.

Needs the extra ``fedmq[client]``.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from fedmq.errors import ConfigError, DaemonError, FedmqError, error_of_status

__all__ = ["AsyncClient", "Client", "ScoreList", "ScoreReason"]


@dataclass(frozen=True, slots=True)
class ScoreReason:
    """The contribution of a party, or of one of its columns, to a margin.

    ``column`` is a name at the active party, and a number at another party; None stands for all
    columns of the party. ``text`` is its owner's published description, or "".
    """

    party: str
    column: str | int | None
    value: float
    text: str = ""


@dataclass(frozen=True, slots=True)
class ScoreList:
    """Scores in the order of the request's ids; None for a missing score.

    For several classes a score is a tuple with a number for each class. ``unknown_at`` by id:
    parties that do not know it. ``degraded`` by party: the share of (row, tree) pairs that were
    guessed since it was silent, or of ids that it does not know or that were scored without it;
    empty when all scores rest on all parties. ``reasons``: the requested reasons of each score, the
    strongest first; none for a guess. ``fallback`` by id: the fallback model that gave the score.
    """

    model: str
    scores: tuple[float | tuple[float, ...] | None, ...]
    unknown_at: Mapping[str, Sequence[str]] = field(default_factory=dict)
    degraded: Mapping[str, float] = field(default_factory=dict)
    reasons: tuple[tuple[ScoreReason, ...], ...] = ()
    fallback: Mapping[str, str] = field(default_factory=dict)


_FIRST_WAIT, _LONGEST_WAIT = 0.05, 1.0  # seconds between two tries
_LONGEST_DEADLINE = 60_000  # milliseconds that the service takes
_SHORTEST = 0.02  # seconds that a try must have
_PASSING = (429, 503)  # too much is asked at once, or a party is away: it may soon be otherwise


def _httpx() -> ModuleType:
    try:
        import httpx
    except ImportError:
        raise ConfigError("httpx is not installed; run: pip install 'fedmq[client]'") from None
    return httpx


def _trusting(ca: str | Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca))
    except OSError as error:  # of ssl, too
        raise ConfigError(f"{ca}: is no certificate in PEM: {error.strerror or error}") from None


class _BaseClient(ABC):
    """Requests and responses; the two clients below send them."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        model: str = "production",
        seconds: float = 10.0,
        retries: int = 0,
        ca: str | Path | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        self._model = model
        self._seconds = seconds
        self._retries = retries
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._httpx = _httpx()
        self._verify = True if ca is None else _trusting(ca)
        self._http = self._new_http_client()

    @abstractmethod
    def _new_http_client(self) -> Any:
        """A client of httpx, for threads or for asyncio."""

    def _request(
        self,
        ids: Sequence[str] | str,
        features: Sequence[Mapping[str, float | str | None]] | None,
        model: str | None,
        output: str,
        seconds: float | None,
        explain: int | None,
        base_margin: Sequence[Any] | None,
    ) -> dict[str, Any]:
        names = [ids] if isinstance(ids, str) else list(ids)
        body: dict[str, Any] = {"ids": names, "output": output}
        if features is not None:
            body["features"] = [dict(row) for row in features]
        if explain is not None:
            body["explain"] = explain
        if base_margin is not None:
            body["base_margin"] = [
                list(map(float, row)) if isinstance(row, Sequence) else float(row)
                for row in base_margin
            ]
        if seconds is not None:
            body["deadline_ms"] = seconds * 1000
        return {
            "url": f"{self._url}/v1/models/{model or self._model}/predict",
            "json": body,
            "headers": self._headers,
            # The service keeps the deadline; the time-out is for a service that does not answer at
            # all.
            "timeout": (seconds or self._seconds) + 1.0,
        }

    def _again(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """``request`` with the ``seconds`` that are left of its deadline."""
        body = request["json"] | {"deadline_ms": min(max(1.0, seconds * 1000), _LONGEST_DEADLINE)}
        return request | {"json": body, "timeout": seconds + 1.0}

    def _wait(self, outcome: Any, tried: int, until: float) -> float | None:
        """Seconds before request number ``tried`` + 1; None if ``outcome`` is the last.

        ``outcome``: a response, or the error instead. ``until``: the deadline by `time.monotonic`.
        """
        if not isinstance(outcome, DaemonError) and outcome.status_code not in _PASSING:
            return None
        wait = min(_FIRST_WAIT * 2 ** (tried - 1), _LONGEST_WAIT) * random.uniform(0.5, 1.0)
        late = time.monotonic() + wait + _SHORTEST >= until
        return None if late or tried > self._retries else wait

    def _scores(self, response: Any) -> ScoreList:
        if isinstance(response, DaemonError):
            raise response
        if response.status_code != 200:
            raise _error(response)
        answer = response.json()
        return ScoreList(
            answer["model"],
            tuple(_score(row["score"]) for row in answer["scores"]),
            {row["id"]: row["unknown_at"] for row in answer["scores"] if "unknown_at" in row},
            answer.get("degraded", {}),
            tuple(_reasons(row["reasons"]) for row in answer["scores"] if "reasons" in row),
            {row["id"]: row["fallback"] for row in answer["scores"] if "fallback" in row},
        )

    def _asked(self, path: str) -> dict[str, Any]:
        return {"url": self._url + path, "headers": self._headers, "timeout": self._seconds}

    @staticmethod
    def _told(response: Any) -> dict[str, Any]:
        if response.status_code != 200:
            raise _error(response)
        told: dict[str, Any] = response.json()
        return told

    def _unreachable(self, error: Exception) -> DaemonError:
        return DaemonError(f"{self._url} does not answer: {str(error) or type(error).__name__}")


def _score(score: float | list[float] | None) -> float | tuple[float, ...] | None:
    return tuple(score) if isinstance(score, list) else score


def _reasons(reasons: list[dict[str, Any]] | None) -> tuple[ScoreReason, ...]:
    return tuple(
        ScoreReason(reason["party"], reason.get("column"), reason["value"], reason.get("text", ""))
        for reason in reasons or ()
    )


def _error(response: Any) -> FedmqError:
    try:
        text = str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        text = f"HTTP status {response.status_code}"
    return error_of_status(response.status_code)(text)


class Client(_BaseClient):
    """Asks the daemon at ``url``, such as ``http://127.0.0.1:8470``, with an API ``token``.

    ``model`` is a model's id or a name. ``seconds`` is the default time to wait for an answer.
    Within this time it asks up to ``retries`` times more where nobody answers, as while the daemon
    restarts, where too much is asked at once, or where a party is away. Each request for scores
    counts towards the limits of their owners. ``ca``: the authority, in PEM, that has signed the
    server's certificate. Safe to use from several threads.
    """

    def _new_http_client(self) -> Any:
        return self._httpx.Client(verify=self._verify)

    def predict(
        self,
        ids: Sequence[str] | str,
        *,
        features: Sequence[Mapping[str, float | str | None]] | None = None,
        model: str | None = None,
        output: str = "prediction",
        seconds: float | None = None,
        explain: int | None = None,
        base_margin: Sequence[float] | Sequence[Sequence[float]] | None = None,
    ) -> ScoreList:
        """Scores of ``ids``, within ``seconds``; ``output`` is ``prediction`` or ``margin``.

        ``explain``: number of reasons for each score, the largest contributions first.
        ``base_margin``: each row's start, instead of the model's base score.

        Raises:
            DataError: no such model, an unknown id, a wrong feature or margin, or no reasons for
                this model.
            Overloaded: ask again later.
            PeerSilent: a party is away, or there was no score in time.
            DaemonError: no service, or the token is wrong.
        """
        request = self._request(ids, features, model, output, seconds, explain, base_margin)
        until = time.monotonic() + (seconds or self._seconds)
        for tried in itertools.count(1):
            try:
                outcome = self._http.post(**request)
            except self._httpx.TransportError as error:
                outcome = self._unreachable(error)
            if (wait := self._wait(outcome, tried, until)) is None:
                return self._scores(outcome)
            time.sleep(wait)
            request = self._again(request, until - time.monotonic())
        raise AssertionError("the tries have no end")

    def models(self) -> dict[str, Any]:
        """The models that are served, by name; errors as of `predict`."""
        return self._get("/v1/models")

    def serving(self) -> dict[str, Any]:
        """What is under way, who is away, and what has happened; errors as of `predict`."""
        return self._get("/v1/serving")

    def lines(self, path: str, request: Mapping[str, Any]) -> Iterator[str]:
        """The lines of the answer to ``request``, as they come; errors as of `predict`."""
        asked = self._asked(path) | {"timeout": self._httpx.Timeout(self._seconds, read=None)}
        try:
            with self._http.stream("POST", json=dict(request), **asked) as response:
                if response.status_code != 200:
                    response.read()
                    raise _error(response)
                yield from response.iter_lines()
        except self._httpx.TransportError as error:
            raise self._unreachable(error) from None

    def _get(self, path: str) -> dict[str, Any]:
        try:
            return self._told(self._http.get(**self._asked(path)))
        except self._httpx.TransportError as error:
            raise self._unreachable(error) from None

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_BaseClient):
    """As ``Client``, for asyncio."""

    def _new_http_client(self) -> Any:
        return self._httpx.AsyncClient(verify=self._verify)

    async def predict(
        self,
        ids: Sequence[str] | str,
        *,
        features: Sequence[Mapping[str, float | str | None]] | None = None,
        model: str | None = None,
        output: str = "prediction",
        seconds: float | None = None,
        explain: int | None = None,
        base_margin: Sequence[float] | Sequence[Sequence[float]] | None = None,
    ) -> ScoreList:
        """As ``Client.predict``."""
        request = self._request(ids, features, model, output, seconds, explain, base_margin)
        until = time.monotonic() + (seconds or self._seconds)
        for tried in itertools.count(1):
            try:
                outcome = await self._http.post(**request)
            except self._httpx.TransportError as error:
                outcome = self._unreachable(error)
            if (wait := self._wait(outcome, tried, until)) is None:
                return self._scores(outcome)
            await asyncio.sleep(wait)
            request = self._again(request, until - time.monotonic())
        raise AssertionError("the tries have no end")

    async def models(self) -> dict[str, Any]:
        """As ``Client.models``."""
        return await self._get("/v1/models")

    async def serving(self) -> dict[str, Any]:
        """As ``Client.serving``."""
        return await self._get("/v1/serving")

    async def _get(self, path: str) -> dict[str, Any]:
        try:
            return self._told(await self._http.get(**self._asked(path)))
        except self._httpx.TransportError as error:
            raise self._unreachable(error) from None

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

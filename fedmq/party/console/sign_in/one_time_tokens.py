"""Tokens that sign one person in, once and soon: what ``fedmq console`` prints."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from fedmq.party.configuration.http import ConsoleRole

__all__ = ["TOKEN_SECONDS", "Grant", "OneTimeTokens"]

TOKEN_SECONDS = 300.0
_MOST_TOKENS = 100


@dataclass(frozen=True, slots=True)
class Grant:
    """Who signs in, and what this person may do besides looking."""

    who: str
    roles: tuple[ConsoleRole, ...]


class OneTimeTokens:
    """Issues tokens, and takes each of them once; ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._grants: dict[bytes, tuple[Grant, float]] = {}
        """By hash, so that the time of a look-up says nothing of a token."""

    def issue(self, grant: Grant) -> str:
        """A new token for ``grant``; of too many the oldest is void."""
        self._forget()
        while len(self._grants) >= _MOST_TOKENS:
            del self._grants[next(iter(self._grants))]
        token = secrets.token_urlsafe(32)
        self._grants[_hash(token)] = grant, self._clock() + TOKEN_SECONDS
        return token

    def redeem(self, token: str) -> Grant | None:
        """What ``token`` grants; None if it is unknown, used or too old. It is used then."""
        self._forget()
        found = self._grants.pop(_hash(token), None)
        return None if found is None else found[0]

    def _forget(self) -> None:
        now = self._clock()
        self._grants = {key: found for key, found in self._grants.items() if found[1] > now}


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()

"""Who is at the browser, and what may this person do?

``fedmq console`` prints a short-lived token that signs one person in, once. A signed cookie keeps
the person signed in. The signing key lives as long as the daemon, so a restart signs everybody out.
Every signed-in person may look. An approver answers requests for the owner's consent; an operator
runs sessions and models. A person may have both roles.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from fedmq.party.configuration.http import ConsoleRole
from fedmq.party.consent.person import Person

__all__ = [
    "CHANGES",
    "SIGN_IN_SECONDS",
    "TOKEN_SECONDS",
    "Grant",
    "Notice",
    "OneTimeTokens",
    "SignIn",
    "SignIns",
    "is_allowed",
]

CHANGES: Mapping[str, ConsoleRole] = {
    "activate": "operator",
    "admit": "operator",
    "approve": "approver",
    "cancel": "operator",
    "pause": "operator",
    "drop": "operator",
    "redeliver": "operator",
    "refuse": "approver",
    "requeue": "operator",
    "resume": "operator",
    "rollback": "operator",
    "score": "operator",
}
"""The role that each changing or costly command of the owner needs."""

TOKEN_SECONDS = 300.0
_MOST_TOKENS = 100
SIGN_IN_SECONDS = 12 * 3600
_MOST_SIGN_INS = 200
_MOST_NOTICES = 5


def is_allowed(command: str, roles: Collection[ConsoleRole]) -> bool:
    """Whether a person with ``roles`` may give ``command``; everybody may look."""
    needed = CHANGES.get(command)
    return needed is None or needed in roles


@dataclass(frozen=True, slots=True)
class Grant:
    """A person and the roles of the sign-in."""

    person: Person
    roles: tuple[ConsoleRole, ...]

    @property
    def who(self) -> str:
        """The person's name."""
        return self.person.name


class OneTimeTokens:
    """Issues tokens, and takes each of them once; ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._grants: dict[bytes, tuple[Grant, float]] = {}
        """By hash, so that the time of a look-up says nothing of a token."""

    def issue(self, grant: Grant) -> str:
        """A new token for ``grant``; beyond the limit the oldest token expires."""
        self._forget()
        while len(self._grants) >= _MOST_TOKENS:
            del self._grants[next(iter(self._grants))]
        token = secrets.token_urlsafe(32)
        self._grants[_hash(token)] = grant, self._clock() + TOKEN_SECONDS
        return token

    def redeem(self, token: str) -> Grant | None:
        """Use up ``token`` for its grant; None if it is unknown, used or too old."""
        self._forget()
        found = self._grants.pop(_hash(token), None)
        return None if found is None else found[0]

    def _forget(self) -> None:
        now = self._clock()
        self._grants = {key: found for key, found in self._grants.items() if found[1] > now}


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True)
class Notice:
    """A message shown once on the next page: a result, or the reason of a failure."""

    text: str
    is_error: bool = False


@dataclass(slots=True)
class SignIn:
    """A person who is signed in until ``until`` (seconds of the clock)."""

    id: str
    grant: Grant
    until: float
    csrf: str
    """A secret that every form sends; another site does not know it."""
    clock: Callable[[], float]
    notices: list[Notice] = field(default_factory=list)
    signed_out: bool = False

    @property
    def ended(self) -> bool:
        """Whether the person signed out, or the time has passed."""
        return self.signed_out or self.until <= self.clock()

    def notify(self, notice: Notice) -> None:
        """Show ``notice`` on the next page."""
        self.notices = [*self.notices, notice][-_MOST_NOTICES:]

    def take_notices(self) -> list[Notice]:
        """Remove and return the notices to show."""
        taken, self.notices = self.notices, []
        return taken


class SignIns:
    """Keeps the people who are signed in; ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._open: dict[str, SignIn] = {}

    def begin(self, grant: Grant) -> tuple[SignIn, str]:
        """Sign a person in: the kept record, and the cookie's value."""
        self._forget()
        while len(self._open) >= _MOST_SIGN_INS:
            del self._open[next(iter(self._open))]
        name = secrets.token_urlsafe(24)
        until = self._clock() + SIGN_IN_SECONDS
        csrf = self._signature("csrf", name)
        self._open[name] = SignIn(name, grant, until, csrf, self._clock)
        return self._open[name], f"{name}.{self._signature('cookie', name)}"

    def of(self, cookie: str) -> SignIn | None:
        """The sign-in of ``cookie``; None if it is forged or expired."""
        name, _, signature = cookie.partition(".")
        expected = self._signature("cookie", name).encode()
        if not hmac.compare_digest(signature.encode("utf-8", "replace"), expected):
            return None
        found = self._open.get(name)
        return None if found is None or found.ended else found

    def end(self, sign_in: SignIn) -> None:
        """Sign out."""
        sign_in.signed_out = True
        self._open.pop(sign_in.id, None)

    def _forget(self) -> None:
        self._open = {name: found for name, found in self._open.items() if not found.ended}

    def _signature(self, purpose: str, name: str) -> str:
        text = f"{purpose}:{name}".encode("utf-8", "replace")
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()

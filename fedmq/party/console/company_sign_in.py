"""How does somebody sign in to the console with an account of the company?

The browser goes to the identity provider and comes back with a code. What belongs to the sign-in
travels with the browser, signed by this daemon, and nothing of it is kept here: nobody can fill a
memory by beginning sign-ins. A cookie binds it to the browser, so that nobody is signed in by an
address that somebody else began.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fedmq.errors import Refused
from fedmq.party.configuration.http import ConsoleRole, OpenIdSection
from fedmq.party.consent.person import Person
from fedmq.party.console.sign_in import Grant
from fedmq.party.http.identity_provider import IdentityProvider, Pending

__all__ = ["CompanySignIn"]

_SIGN_IN_SECONDS = 600
_COOKIE_PATH = "/console/openid"
_LONGEST_NAME = 64


class CompanySignIn:
    """Sign-ins at ``provider``; ``place`` tells where people find the console.

    ``clock`` gives seconds.
    """

    def __init__(
        self,
        section: OpenIdSection,
        provider: IdentityProvider,
        place: Callable[[], str],
        clock: Callable[[], float],
    ) -> None:
        self._section = section
        self._provider = provider
        self._place = place
        self._clock = clock
        self._key = secrets.token_bytes(32)

    async def leave(self, cookie: str, is_secure: bool) -> Response:
        """Send the browser to the provider; ``cookie`` is the name of what it brings back.

        Raises:
            LinkError: the provider cannot be reached.
        """
        until = int(self._clock() + _SIGN_IN_SECONDS)
        text = f"{secrets.token_urlsafe(24)}.{until}"
        state = f"{text}.{self._secret('state', text)}"
        address = await self._provider.address(self._pending(state), self._back())
        response = RedirectResponse(address, 303)
        # Lax: the browser comes back from another site.
        response.set_cookie(
            cookie,
            state,
            max_age=_SIGN_IN_SECONDS,
            path=_COOKIE_PATH,
            secure=is_secure,
            httponly=True,
            samesite="lax",
        )
        return response

    async def come_back(self, cookie: str, request: Request) -> Grant:
        """The person whom the provider sent back, and the roles of the person's groups.

        Raises:
            LinkError: the provider cannot be reached.
            Refused: the sign-in did not begin here, the provider refuses, or none of the groups
                has a role here.
        """
        state = request.query_params.get("state", "")
        if not self._began_here(state, request.cookies.get(cookie, "")):
            raise Refused("this sign-in began elsewhere or too long ago; sign in again")
        # RFC 9207: another provider's answer is not taken for this one's.
        if request.query_params.get("iss", self._section.issuer) != self._section.issuer:
            raise Refused("the answer is another identity provider's")
        refusal = request.query_params.get("error")
        if refusal is not None:
            raise Refused(f"the identity provider refused the sign-in: {refusal[:100]}")
        code = request.query_params.get("code", "")
        claims = await self._provider.claims(code, self._pending(state), self._back())
        return self._grant(claims)

    def _grant(self, claims: Mapping[str, Any]) -> Grant:
        name = claims.get(self._section.name_claim)
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) < _LONGEST_NAME:
            raise Refused(
                f"the identity provider tells no name: {self._section.name_claim} (claim)"
            )
        groups = claims.get(self._section.groups_claim, ())
        told = {groups} if isinstance(groups, str) else {str(group) for group in groups}
        granted = [roles for group, roles in self._section.roles.items() if group in told]
        if not granted:
            raise Refused(f"{name} is in no group of http.openid.roles; ask the party's owner")
        roles: tuple[ConsoleRole, ...] = tuple(
            dict.fromkeys(role for each in granted for role in each)
        )
        # The provider vouches for the subject alone: names change, and come to other people.
        return Grant(Person(name, f"{claims['sub']} at {self._section.issuer}"), tuple(roles))

    def _back(self) -> str:
        return f"{self._place()}{_COOKIE_PATH}/back"

    def _pending(self, state: str) -> Pending:
        return Pending(state, self._secret("nonce", state), self._secret("verifier", state))

    def _began_here(self, state: str, cookie: str) -> bool:
        text, _, signature = state.rpartition(".")
        expected = self._secret("state", text).encode()
        return (
            hmac.compare_digest(state.encode("utf-8", "replace"), cookie.encode("utf-8", "replace"))
            and hmac.compare_digest(signature.encode("utf-8", "replace"), expected)
            and int(text.rpartition(".")[2]) > self._clock()
        )

    def _secret(self, purpose: str, text: str) -> str:
        """43 characters (RFC 7636 asks a verifier for as many) that nobody else can make."""
        made = hmac.digest(
            self._key, f"{purpose}:{text}".encode("utf-8", "replace"), hashlib.sha256
        )
        return base64.urlsafe_b64encode(made).rstrip(b"=").decode()

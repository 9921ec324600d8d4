"""What does the company's identity provider say of a person or a program?

OpenID Connect Core 1.0: the authorisation code flow (section 3.1) with PKCE (RFC 7636, S256), and
JSON Web Tokens as access tokens (RFC 9068). Needs the extra ``fedmq[openid]``.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

import httpx
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from fedmq.errors import FedmqError, LinkError, Refused
from fedmq.party.configuration.http import OpenIdSection

__all__ = ["IdentityProvider", "Pending"]

_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
"""Signatures by a key pair alone: whoever can verify a token must not be able to make one."""

_TIMEOUT_SECONDS = 10.0
_LEEWAY_SECONDS = 60  # between the provider's clock and this one
_FETCH_SECONDS = 60.0  # at least so long between two looks at the provider's keys


@dataclass(frozen=True, slots=True)
class Pending:
    """A sign-in that has begun: what comes back with it, and the two secrets that bind it."""

    state: str
    nonce: str
    verifier: str


class IdentityProvider:
    """The provider of ``section``; ``clock`` gives seconds since 1970.

    Its description and its keys are fetched when they are needed first, and the keys again when a
    token names another one.
    """

    def __init__(self, section: OpenIdSection, clock: Callable[[], float] = time.time) -> None:
        self._section = section
        self._clock = clock
        self._described: Mapping[str, Any] | None = None
        self._keys: KeySet | None = None
        self._fetched = 0.0

    async def address(self, pending: Pending, back: str) -> str:
        """Where a browser goes to sign in; it comes back to ``back``.

        Raises:
            LinkError: the provider cannot be reached.
        """
        described = await self._description()
        digest = hashlib.sha256(pending.verifier.encode()).digest()
        address = httpx.URL(described["authorization_endpoint"]).copy_merge_params(
            {
                "response_type": "code",
                "client_id": self._section.client_id,
                "redirect_uri": back,
                "scope": " ".join(self._section.scopes),
                "state": pending.state,
                "nonce": pending.nonce,
                "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
                "code_challenge_method": "S256",
            }
        )
        return str(address)

    async def claims(self, code: str, pending: Pending, back: str) -> Mapping[str, Any]:
        """What the provider says of the person who came back with ``code``.

        Raises:
            LinkError: the provider cannot be reached.
            Refused: it refuses the code, or its answer is not for this sign-in.
        """
        described = await self._description()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": back,
            "client_id": self._section.client_id,
            "code_verifier": pending.verifier,
        }
        try:
            async with httpx.AsyncClient(auth=self._proof(), timeout=_TIMEOUT_SECONDS) as client:
                answer = (await client.post(described["token_endpoint"], data=form)).json()
        except (httpx.HTTPError, ValueError) as error:
            raise self._away(error) from None
        if not isinstance(answer, dict) or "id_token" not in answer:
            why = answer.get("error") if isinstance(answer, dict) else None
            raise Refused(f"the identity provider refused the sign-in: {why or 'no token came'}")
        claims = await self._verified(str(answer["id_token"]), self._section.client_id)
        if claims.get("nonce") != pending.nonce:
            raise Refused("the identity provider's answer is not for this sign-in")
        wanted = (self._section.name_claim, self._section.groups_claim)
        if all(name in claims for name in wanted) or "userinfo_endpoint" not in described:
            return claims
        more = await self._fetch(described["userinfo_endpoint"], str(answer.get("access_token")))
        if more.get("sub") != claims["sub"]:  # section 5.3.2: it may be about somebody else
            raise Refused("the identity provider tells of another person")
        return {**more, **claims}

    async def admits(self, token: str) -> bool:
        """Whether ``token`` is an access token for the audience of the HTTP API."""
        if self._section.audience is None or token.count(".") != 2:
            return False
        try:
            await self._verified(token, self._section.audience)
        except FedmqError:
            return False
        return True

    def _proof(self) -> httpx.BasicAuth | None:
        """Name and secret, encoded as RFC 6749, section 2.3.1 says."""
        secret = self._section.client_secret
        if secret is None:
            return None
        return httpx.BasicAuth(
            quote_plus(self._section.client_id), quote_plus(secret.get_secret_value())
        )

    async def _verified(self, token: str, audience: str) -> Mapping[str, Any]:
        """The claims of ``token``; Refused if it is not signed, for others, or too old."""
        try:
            decoded = await self._decoded(token)
            jwt.JWTClaimsRegistry(
                now=int(self._clock()),
                leeway=_LEEWAY_SECONDS,
                iss={"essential": True, "value": self._section.issuer},
                aud={"essential": True, "value": audience},
                exp={"essential": True},
                sub={"essential": True},
            ).validate(decoded)
        except (JoseError, ValueError) as error:
            raise Refused(f"the token of the identity provider is invalid: {error}") from None
        return decoded

    async def _decoded(self, token: str) -> dict[str, Any]:
        if self._keys is not None:
            try:
                return jwt.decode(token, self._keys, _ALGORITHMS).claims
            except (JoseError, ValueError):
                if self._clock() - self._fetched < _FETCH_SECONDS:
                    raise
        address = (await self._description())["jwks_uri"]
        self._fetched = self._clock()
        self._keys = KeySet.import_key_set(await self._fetch(address))
        return jwt.decode(token, self._keys, _ALGORITHMS).claims

    async def _description(self) -> Mapping[str, Any]:
        if self._described is None:
            issuer = self._section.issuer
            place = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
            described = await self._fetch(place)
            wanted = ("authorization_endpoint", "token_endpoint", "jwks_uri")
            if described.get("issuer") != issuer:
                raise LinkError(
                    f"http.openid.issuer: {issuer} calls itself {described.get('issuer')!r}; "
                    "write that"
                )
            if not all(isinstance(described.get(name), str) for name in wanted):
                raise LinkError(f"http.openid.issuer: {place} does not tell {', '.join(wanted)}")
            self._described = described
        return self._described

    async def _fetch(self, address: str, token: str = "") -> Any:
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            async with httpx.AsyncClient(headers=shown, timeout=_TIMEOUT_SECONDS) as client:
                answer = (await client.get(address)).raise_for_status().json()
        except (httpx.HTTPError, ValueError) as error:
            raise self._away(error) from None
        if not isinstance(answer, dict):
            raise LinkError(f"http.openid.issuer: {address} has no JSON object")
        return answer

    def _away(self, error: Exception) -> LinkError:
        return LinkError(
            f"the identity provider {self._section.issuer} cannot be asked: "
            f"{type(error).__name__}: {error}"
        )

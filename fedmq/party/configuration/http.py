"""``[http]`` of a party's file: where the daemon serves HTTP, and whom it lets in."""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Mapping
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from fedmq.party.configuration.toml_file import FilePath, Section

__all__ = ["ConsoleRole", "HttpSection", "OpenIdSection"]

ConsoleRole = Literal["viewer", "approver", "operator"]
"""What a person may do in the console: look, answer requests for consent, run things."""

_SHORTEST_TOKEN = 16


def _long_enough(token: SecretStr) -> SecretStr:
    if len(token) < _SHORTEST_TOKEN:
        raise ValueError(
            f"a token has at least {_SHORTEST_TOKEN} characters, as from: openssl rand -hex 16"
        )
    return token


Token = Annotated[SecretStr, AfterValidator(_long_enough)]


def _origin(address: str) -> str:
    if not re.fullmatch(r"https://[^/?#@\s]+", address):
        raise ValueError(
            f"{address!r} is no https address without a path, such as https://fedmq.bank.example"
        )
    return address.lower()


def _issuer(address: str) -> str:
    parts = urlsplit(address)
    local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not parts.hostname or (parts.scheme != "https" and not (local and parts.scheme == "http")):
        raise ValueError(f"{address!r} is no https address, such as https://login.bank.example")
    return address


class OpenIdSection(Section):
    """Sign-in with the accounts of a company: OpenID Connect, needs ``fedmq[openid]``.

    People sign in to the console by an authorisation code with PKCE, and are let in by the groups
    that the provider tells. Programs show access tokens (JSON Web Tokens) of the same provider.
    """

    issuer: Annotated[str, AfterValidator(_issuer)]
    """The provider's address, as its tokens name it."""
    client_id: Annotated[str, Field(min_length=1)]
    """How the provider knows this console."""
    client_secret: SecretStr | None = None
    """What the console proves that with; none where the provider has it as a public client."""
    scopes: tuple[str, ...] = ("openid", "profile", "groups")
    """What the provider is asked to tell."""
    name_claim: Annotated[str, Field(min_length=1)] = "preferred_username"
    """The claim that has a person's name. Choose one that people cannot change by themselves."""
    groups_claim: Annotated[str, Field(min_length=1)] = "groups"
    """The claim that lists a person's groups."""
    roles: Mapping[str, tuple[ConsoleRole, ...]] = {}
    """By group, what its people may do in the console. Who is in none of them is not let in."""
    audience: Annotated[str, Field(min_length=1)] | None = None
    """Access tokens for this audience open the HTTP API, as those of ``tokens`` do; none does when
    left out."""


class HttpSection(Section):
    """Loopback by default. Beyond it callers show a token or a certificate.

    Paths below ``/health/`` ask for no token; where there are tokens, whoever shows none is told no
    more than yes or no.
    """

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: Annotated[int, Field(ge=0, lt=65536)] = 8470
    """The port; 0 for any free one."""
    tokens: tuple[Token, ...] = ()
    """What a caller sends one of, as ``Authorization: Bearer ...``, of 16 characters or more;
    none is asked for when left out."""
    operators: Mapping[Annotated[str, Field(min_length=1)], Token] = {}
    """Programs that begin sessions from other machines (``fedmq.connect``), by a name for the audit
    log, and the token of each; it opens the rest of the API, too."""
    body_bytes: Annotated[int, Field(ge=1024)] = 16 * 1024 * 1024
    """The longest body of a request that is read; a compressed one is as long as what is in it."""
    connections: Annotated[int, Field(ge=1)] = 256
    """Connections at once. One more takes the place of the one whose request has been awaited for
    longest."""
    request_seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """Seconds until the head of a request is here, as many for its body, and six times as many in
    which nothing of an answer is read; then its connection is closed."""
    certificate: FilePath | None = None
    """The server's own certificate; turns TLS on."""
    key: FilePath | None = None
    """The private key of that certificate."""
    client_ca: FilePath | None = None
    """The authority of which every caller needs a certificate."""
    console: bool = False
    """Whether the owner's console is served, below ``/console``; needs ``fedmq[console]``."""
    console_behind_proxy: Annotated[str, AfterValidator(_origin)] | None = None
    """The https address of a proxy that shows the console to people, without a path."""
    console_certificates: Mapping[str, tuple[ConsoleRole, ...]] = {}
    """Who signs in to the console by a certificate of ``client_ca``: its common name, and what this
    person may do. Anybody else needs a token of ``fedmq console``, or signs in by ``openid``."""
    openid: OpenIdSection | None = None
    """The company's identity provider; none when left out."""

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together; one of them is missing")
        if self.client_ca is not None and self.certificate is None:
            raise ValueError("client_ca needs TLS: add certificate and key")
        if not self.is_local and not self.asks_for_tokens and self.client_ca is None:
            raise ValueError(
                f"{self.host} can be reached from elsewhere: add tokens, openid.audience, or "
                "certificate, key and client_ca; or keep to 127.0.0.1"
            )
        return self

    @model_validator(mode="after")
    def _operators_unread(self) -> Self:
        if self.operators and not self.is_local and self.certificate is None:
            raise ValueError(
                f"operators: {self.host} can be reached from elsewhere, and tokens would travel "
                "unencrypted: add certificate and key; or keep to 127.0.0.1"
            )
        return self

    @model_validator(mode="after")
    def _signs_in(self) -> Self:
        openid = self.openid
        if openid is not None and not openid.roles and openid.audience is None:
            raise ValueError("openid lets nobody in: add openid.roles, openid.audience or both")
        if openid is not None and openid.audience == openid.client_id:
            raise ValueError(
                "openid.audience and openid.client_id are the same, so what tells the console of a "
                "person would open the HTTP API: choose another audience"
            )
        if openid is not None and openid.roles and not self.console:
            raise ValueError("openid.roles is about the console: add console = true")
        return self

    @model_validator(mode="after")
    def _console_unread(self) -> Self:
        encrypted = self.certificate is not None or self.console_behind_proxy is not None
        if self.console and not self.is_local and not encrypted:
            raise ValueError(
                f"console = true: {self.host} can be reached from elsewhere, and the console's "
                "forms would travel unencrypted: add certificate and key, or "
                "console_behind_proxy; or keep to 127.0.0.1"
            )
        if self.console_certificates and self.client_ca is None:
            raise ValueError("console_certificates needs client_ca, which asks for certificates")
        return self

    @property
    def asks_for_tokens(self) -> bool:
        """Whether callers show a token."""
        openid = self.openid
        return bool(self.tokens or self.operators or (openid is not None and openid.audience))

    @property
    def is_local(self) -> bool:
        """Whether only this machine can call."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def client_certificates(self) -> ssl.VerifyMode:
        """What TLS asks of callers."""
        return ssl.CERT_NONE if self.client_ca is None else ssl.CERT_REQUIRED

"""A company's identity provider, Canaille, with people, groups and a console as its client."""

from __future__ import annotations

import datetime
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import httpx
from canaille import create_app
from canaille.app import models
from canaille.backends import Backend
from flask import Flask
from joserfc import jwt
from joserfc.jwk import RSAKey

__all__ = ["CLIENT", "PASSWORD", "SECRET", "IdentityServer", "identity_server"]

CLIENT, SECRET = "fedmq-console", "what-the-provider-gave-the-console"
PASSWORD = "correct horse battery"
PEOPLE = {"anna": "fedmq-operators", "carl": "fedmq-viewers", "bert": "sales"}


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing: a test reads what the daemon says."""


@dataclass
class IdentityServer:
    """The provider at ``issuer``, which signs with ``key``."""

    issuer: str
    key: RSAKey
    app: Flask

    def registers(self, *back: str) -> None:
        """Know the console, whose people come back to an address of ``back``."""
        with self.app.app_context():
            for known in Backend.instance.query(models.Client, client_id=CLIENT):
                Backend.instance.delete(known)
            console = models.Client(
                client_id=CLIENT,
                client_secret=SECRET,
                client_name="console of the bank",
                client_uri=back[0],
                redirect_uris=list(back),
                grant_types=["authorization_code"],
                response_types=["code"],
                token_endpoint_auth_method="client_secret_basic",
                scope=["openid", "profile", "groups"],
            )
            Backend.instance.save(console)
            Backend.instance.update(console, audience=[console])
            Backend.instance.save(console)

    def signs_in(self, name: str, address: str) -> httpx.URL:
        """Fill in the provider's own pages at ``address``; where they send the browser then."""
        with httpx.Client() as browser:
            answer = browser.get(address)
            while not (place := answer.headers.get("location", "")).startswith("http") or (
                place.startswith(self.issuer)
            ):
                if place:
                    answer = browser.get(answer.url.join(place))
                    continue
                assert answer.status_code == 200, answer.text
                form = {"login": name} if 'name="login"' in answer.text else {}
                if 'name="password"' in answer.text:
                    form["password"] = PASSWORD
                elif not form:
                    form["answer"] = "accept"
                answer = browser.post(answer.url, data=form)
        return httpx.URL(place)

    def token(self, signed_with: RSAKey | None = None, **claims: Any) -> str:
        """An access token; ``claims`` replace its own."""
        now = int(datetime.datetime.now().timestamp())
        told = {"iss": self.issuer, "sub": "scores", "iat": now, "exp": now + 60, **claims}
        key = signed_with or self.key
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, told, key)


@contextmanager
def identity_server() -> Iterator[IdentityServer]:
    """A provider on a free port."""
    key = RSAKey.generate_key(2048)
    key.ensure_kid()
    server: WSGIServer = make_server("localhost", 0, None, handler_class=_Quiet)  # type: ignore[arg-type]
    app = create_app(
        config={
            "TESTING": True,
            "ENV_FILE": None,
            "SECRET_KEY": str(uuid.uuid4()),
            "WTF_CSRF_ENABLED": False,
            "PREFERRED_URL_SCHEME": "http",
            "SERVER_NAME": f"localhost:{server.server_port}",
            "CANAILLE": {
                "DATABASE": "memory",
                "JAVASCRIPT": False,
                "ACL": {"DEFAULT": {"PERMISSIONS": ["use_oidc"]}},
                "LOGGING": {"version": 1, "disable_existing_loggers": False},
            },
            "CANAILLE_OIDC": {"ACTIVE_JWKS": [key.as_dict(private=True)]},
        }
    )
    server.set_app(app)
    with app.app_context():
        for name, group in PEOPLE.items():
            person = models.User(
                user_name=name,
                formatted_name=name.title(),
                family_name=name.title(),
                emails=[f"{name}@bank.example"],
                password=PASSWORD,
            )
            Backend.instance.save(person)
            Backend.instance.save(models.Group(display_name=group, members=[person]))
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield IdentityServer(f"http://localhost:{server.server_port}", key, app)
    finally:
        server.shutdown()
        server.server_close()
        serving.join()

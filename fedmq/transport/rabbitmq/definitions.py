"""Which users and rights the broker loads."""

from __future__ import annotations

import hashlib
import re
import secrets
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from fedmq.errors import ConfigError
from fedmq.transport.link import LANES
from fedmq.transport.rabbitmq.topology import (
    ADMIN,
    dead_queue_name,
    exactly,
    exchange_name,
    policies,
    queue_name,
    topology,
)

__all__ = ["definitions", "password_hash"]


def password_hash(password: str, salt: bytes | None = None) -> str:
    """RabbitMQ's ``rabbit_password_hashing_sha256``: base64(salt ‖ SHA-256(salt ‖ password)).

    The salt has 4 bytes, random unless given. One round of SHA-256 guards no weak password, so
    passwords are to be drawn at random (RabbitMQ, "Credentials and Passwords").
    """
    salt = secrets.token_bytes(4) if salt is None else salt
    return b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def definitions(
    federation: str,
    parties: Iterable[str],
    passwords: Mapping[str, str] | None,
    vhost: str = "/",
    *,
    admin_password: str | None = None,
) -> dict[str, Any]:
    """The definitions file (JSON as a dict) with which a broker serves one federation.

    A party's user has the party's name. It configures nothing, reads its own queues, and writes to
    the federation's exchange under its own name; dead-lettering is the broker's own act and needs
    no right. Without ``passwords`` a user can log in by a certificate alone (mechanism EXTERNAL).
    ``admin_password`` adds a user ``admin`` with all rights, for the management page.

    Raises `ConfigError` for a wrong name, a party without a password, and a party named ``admin``
    beside that user.
    """
    names = list(parties)
    layout = topology(federation, names)
    users: list[dict[str, Any]] = []
    permissions: list[dict[str, str]] = []
    topic_permissions: list[dict[str, str]] = []

    def add(
        user: str, password: str | None, tags: list[str], configure: str, write: str, read: str
    ) -> None:
        users.append(
            {
                "name": user,
                "password_hash": "" if password is None else password_hash(password),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": tags,
            }
        )
        rights = {"configure": configure, "write": write, "read": read}
        permissions.append({"user": user, "vhost": vhost, **rights})

    for party in names:
        if passwords is not None and not passwords.get(party):
            raise ConfigError(f"federation {federation!r}: party {party!r} has no broker password")
        own = [*(queue_name(federation, party, lane) for lane in LANES)]
        own.append(dead_queue_name(federation, party))
        add(
            party,
            None if passwords is None else passwords[party],
            tags=[],
            configure="^$",
            write=exactly(exchange_name(federation)),
            read=exactly(*own),
        )
        topic_permissions.append(
            {
                "user": party,
                "vhost": vhost,
                "exchange": exchange_name(federation),
                "write": rf"^{re.escape(party)}\.",
                "read": "^$",
            }
        )
    if admin_password is not None:
        if ADMIN in names:
            raise ConfigError(f"federation {federation!r}: a party may not be named {ADMIN!r}")
        add(ADMIN, admin_password, tags=["administrator"], configure=".*", write=".*", read=".*")

    return {
        "vhosts": [{"name": vhost}],
        "users": users,
        "permissions": permissions,
        "topic_permissions": topic_permissions,
        "policies": policies(federation, names, vhost),
        "exchanges": [
            {
                "name": exchange.name,
                "vhost": vhost,
                "type": exchange.type,
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": {},
            }
            for exchange in layout.exchanges
        ],
        "queues": [
            {
                "name": queue.name,
                "vhost": vhost,
                "durable": True,
                "auto_delete": False,
                "arguments": dict(queue.arguments),
            }
            for queue in layout.queues
        ],
        "bindings": [
            {
                "source": binding.exchange,
                "vhost": vhost,
                "destination": binding.queue,
                "destination_type": "queue",
                "routing_key": binding.routing_key,
                "arguments": {},
            }
            for binding in layout.bindings
        ],
    }

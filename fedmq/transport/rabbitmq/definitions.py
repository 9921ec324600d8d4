"""The definitions that a broker loads at boot: a federation's users, rights, limits and queues.

A party's user has the party's name. It configures nothing, reads its own queues, and writes to the
federation's exchange under its own name. Dead-lettering is the broker's own act and needs no right.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from fedmq.errors import ConfigError
from fedmq.transport.link import LANES, PASSING
from fedmq.transport.rabbitmq.topology import (
    DEAD_QUEUE_BYTES,
    DELIVERY_LIMIT,
    Topology,
    dead_exchange_name,
    dead_queue_name,
    exchange_name,
    queue_name,
    topology,
)

__all__ = ["definitions", "password_hash", "policies"]

_ADMIN = "admin"

# Dead letters may stay unread for months; the oldest go before the disk is full.
_DEAD_LETTER_MILLISECONDS = 30 * 24 * 3600 * 1000

# Peers abort sessions with a party that is away for longer, and their seals expire.
_MESSAGE_MILLISECONDS = 7 * 24 * 3600 * 1000

# Publishing to a full queue fails and the sender retries, so no message is dropped.
_QUEUE_BYTES = 4 * 1024 * 1024 * 1024


def definitions(
    federation: str,
    parties: Iterable[str],
    passwords: Mapping[str, str] | None,
    vhost: str = "/",
    *,
    admin_password: str | None = None,
) -> dict[str, Any]:
    """The definitions file, JSON as a dict, with which a broker serves one federation.

    Without ``passwords`` a user can log in by a certificate alone (mechanism EXTERNAL).
    ``admin_password`` adds a user ``admin`` with all rights, for the management page.

    Raises:
        ConfigError: a wrong name, a party without a password, or a party named ``admin`` beside
            that user.
    """
    names = list(parties)
    layout = topology(federation, names)
    for party in names:
        if passwords is not None and not passwords.get(party):
            raise ConfigError(f"federation {federation!r}: party {party!r} has no broker password")
    if admin_password is not None and _ADMIN in names:
        raise ConfigError(f"federation {federation!r}: a party may not be named {_ADMIN!r}")

    users = [_user(party, passwords[party] if passwords is not None else None) for party in names]
    permissions = [_party_permission(federation, party, vhost) for party in names]
    if admin_password is not None:
        users.append(_user(_ADMIN, admin_password, "administrator"))
        permissions.append(_permission(_ADMIN, vhost, configure=".*", write=".*", read=".*"))
    return {
        "vhosts": [{"name": vhost}],
        "users": users,
        "permissions": permissions,
        "topic_permissions": [_topic_permission(federation, party, vhost) for party in names],
        "policies": policies(federation, names, vhost),
        **_layout(layout, vhost),
    }


def password_hash(password: str, salt: bytes | None = None) -> str:
    """RabbitMQ's ``rabbit_password_hashing_sha256``: base64(salt ‖ SHA-256(salt ‖ password)).

    The salt has 4 bytes, random unless given. One round of SHA-256 does not protect weak passwords,
    so draw passwords at random (RabbitMQ, "Credentials and Passwords").
    """
    salt = secrets.token_bytes(4) if salt is None else salt
    return b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def policies(federation: str, parties: Iterable[str], vhost: str = "/") -> list[dict[str, Any]]:
    """The limits of a federation's queues, which an operator can change while they are in use.

    A queue's own arguments may set the same limit; the lower one holds.
    """
    names = list(parties)
    durable = [
        _policy(
            f"fedmq {federation} {party}",
            vhost,
            [queue_name(federation, party, lane) for lane in LANES if lane not in PASSING],
            {
                "delivery-limit": DELIVERY_LIMIT,
                "dead-letter-exchange": dead_exchange_name(federation),
                "dead-letter-routing-key": party,
                "message-ttl": _MESSAGE_MILLISECONDS,
                "max-length-bytes": _QUEUE_BYTES,
                "overflow": "reject-publish",
            },
        )
        for party in names
    ]
    dead = _policy(
        f"fedmq {federation} dead letters",
        vhost,
        [dead_queue_name(federation, party) for party in names],
        {"message-ttl": _DEAD_LETTER_MILLISECONDS, "max-length-bytes": DEAD_QUEUE_BYTES},
    )
    return [*durable, dead]


def _policy(
    name: str, vhost: str, queues: Iterable[str], definition: Mapping[str, str | int]
) -> dict[str, Any]:
    return {
        "vhost": vhost,
        "name": name,
        "pattern": _exactly(*queues),
        "apply-to": "queues",
        "priority": 1,
        "definition": dict(definition),
    }


def _user(name: str, password: str | None, *tags: str) -> dict[str, Any]:
    return {
        "name": name,
        "password_hash": "" if password is None else password_hash(password),
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": list(tags),
    }


def _permission(user: str, vhost: str, *, configure: str, write: str, read: str) -> dict[str, str]:
    return {"user": user, "vhost": vhost, "configure": configure, "write": write, "read": read}


def _party_permission(federation: str, party: str, vhost: str) -> dict[str, str]:
    own = [queue_name(federation, party, lane) for lane in LANES]
    return _permission(
        party,
        vhost,
        configure="^$",
        write=_exactly(exchange_name(federation)),
        read=_exactly(*own, dead_queue_name(federation, party)),
    )


def _topic_permission(federation: str, party: str, vhost: str) -> dict[str, str]:
    """A routing key starts with its sender's name; no user may write another's."""
    return {
        "user": party,
        "vhost": vhost,
        "exchange": exchange_name(federation),
        "write": rf"^{re.escape(party)}\.",
        "read": "^$",
    }


def _exactly(*names: str) -> str:
    """A pattern that matches exactly these names."""
    return f"^({'|'.join(re.escape(name) for name in names)})$"


def _layout(layout: Topology, vhost: str) -> dict[str, Any]:
    return {
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

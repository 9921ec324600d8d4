"""What people may do in the console, by their roles.

Everybody who is signed in may look. An approver answers what needs the owner's consent, an operator
runs things; whoever is to do both has both roles.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fedmq.party.configuration.http import ConsoleRole

__all__ = ["CHANGES", "is_allowed"]

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
"""The owner's commands that change something or cost something, and who may give them."""


def is_allowed(command: str, roles: Collection[ConsoleRole]) -> bool:
    """Whether somebody with ``roles`` may give ``command``; looking is allowed to all."""
    needed = CHANGES.get(command)
    return needed is None or needed in roles

"""The owner's commands, given in a browser: by whom, and on the audit log before they are done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedmq.errors import DaemonError, FedmqError, Refused
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.consent.audited import audited
from fedmq.party.console.sign_in.one_time_tokens import Grant
from fedmq.party.console.sign_in.roles import CHANGES, is_allowed
from fedmq.party.services.service import Command

__all__ = ["OwnerActions"]

_LONGEST_VALUE = 200


class OwnerActions:
    """Gives ``commands`` to the daemon of ``party``, as its control socket does."""

    def __init__(self, party: str, commands: Mapping[str, Command], audit_log: AuditLog) -> None:
        self._party = party
        self._commands = commands
        self._audit_log = audit_log

    async def ask(self, grant: Grant, command: str, **request: Any) -> Any:
        """The result of ``command``.

        Raises:
            DaemonError: the daemon does not know the command.
            Refused: the person may not do this, or it cannot be audited.
            FedmqError: whatever the command raises.
        """
        if command not in self._commands:
            raise DaemonError(f"this daemon does not know how to {command!r}")
        if command not in CHANGES:
            return await self.look(command, **request)
        if not is_allowed(command, grant.roles):
            await self.record(grant, "refused", what=command)
            raise Refused(
                f"{grant.who} may not {command}: it takes the role {CHANGES[command]}; ask for it "
                f"with: fedmq console PARTY.toml --role {CHANGES[command]}"
            )
        await self.record(grant, command, **request)
        try:
            return await self._do(command, request)
        except FedmqError as error:
            await self.record(grant, "failed", what=command, why=str(error))
            raise

    async def look(self, command: str, **request: Any) -> Any:
        """The result of ``command``, which changes nothing, for anybody who is signed in."""
        assert command not in CHANGES
        return await self._do(command, request)

    async def record(self, grant: Grant, event: str, **details: Any) -> None:
        """Write what somebody does into the audit log; Refused if it cannot be written."""
        entry = {name: _short(value) for name, value in details.items()}
        try:
            await audited(
                self._audit_log,
                self._party,
                "console",
                who=grant.who,
                roles=list(grant.roles),
                did=event,
                **entry,
            )
        except Refused as error:
            raise Refused(f"{error}, so nothing is done") from error

    async def _do(self, command: str, request: Mapping[str, Any]) -> Any:
        return await self._commands[command]({"do": command, **request}, _unwatched)


async def _unwatched(_: Mapping[str, Any]) -> None:
    """Progress of a command that a page does not show."""


def _short(value: Any) -> Any:
    """``value`` as an audit log keeps it: ids and features of people are none of its business."""
    if isinstance(value, str):
        return value[:_LONGEST_VALUE]
    if value is None or isinstance(value, bool | int | float):
        return value
    return f"{len(value)} values" if hasattr(value, "__len__") else str(value)[:_LONGEST_VALUE]

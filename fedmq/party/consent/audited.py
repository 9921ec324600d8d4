"""What is done only once the audit log has it: an entry is on the disk, or it is refused."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from fedmq.errors import FedmqError, Refused
from fedmq.party.consent.audit_log import AuditLog

__all__ = ["audited"]

log = logging.getLogger(__name__)


async def audited(audit_log: AuditLog, party: str, event: str, /, **details: Any) -> None:
    """Record ``event`` of ``party``, beside the event loop; it is on the disk when this returns.

    Raises:
        Refused: it cannot be recorded; why is for the party's own log.
    """
    try:
        await asyncio.to_thread(audit_log.record, event, **details)
    except FedmqError as error:
        log.error("%s: %s", party, error)
        raise Refused(f"{party} cannot write its audit log") from error

"""Whether a party's own files serve: seen at the start, long before a session needs them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from fedmq.errors import FedmqError
from fedmq.party.configuration.data import DataSection
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.sources.opening import source_of
from fedmq.party.data.table import Roles
from fedmq.party.operations.certificate_expiry import certificate_warnings

__all__ = ["FileCheck"]

log = logging.getLogger(__name__)

_SECONDS = 5.0
"""How old a finding may be before whoever asks has the files opened again."""


class FileCheck:
    """Opens the tables that ``config()`` names, reading no rows, and looks at the certificate.

    ``stale`` adds a line where the party's file is another one than that of the start.
    """

    def __init__(
        self,
        config: Callable[[], PartyFile],
        clock: Callable[[], float] = time.monotonic,
        stale: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self.troubles: tuple[str, ...] = ()
        """What was wrong when the files were looked at last, a line each."""
        self._config = config
        self._clock = clock
        self._stale = stale
        self._looked: float | None = None
        self._looking = asyncio.Lock()

    async def look(self) -> None:
        """Make ``troubles`` not older than some seconds; a new one is logged."""
        async with self._looking:
            if self._looked is None or self._clock() - self._looked > _SECONDS:
                found = await asyncio.to_thread(self._found)
                for trouble in set(found) - set(self.troubles):
                    log.warning("%s", trouble)
                self.troubles, self._looked = found, self._clock()

    def _found(self) -> tuple[str, ...]:
        return (*_troubles(self._config()), *self._stale())


def _troubles(config: PartyFile) -> tuple[str, ...]:
    sections = {"data": config.data, "serving": config.serving}
    found = (
        _trouble(config.party, section, name == "data" and section.label is not None)
        for name, section in sections.items()
        if section is not None
    )
    return (*(trouble for trouble in found if trouble), *certificate_warnings(config))


def _trouble(party: str, section: DataSection, labelled: bool) -> str:
    try:
        with source_of(party, section) as source:
            Roles.of(source, section, labelled)
    except FedmqError as error:
        return str(error)
    return ""

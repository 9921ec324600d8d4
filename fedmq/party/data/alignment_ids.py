"""Which ids go into an alignment, and how the alignment is stored: computations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import Computation
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.table import ReadTable, Table
from fedmq.party.store.alignments import AlignmentStore, StoredAlignment
from fedmq.privacy.set_intersection import IdList

__all__ = ["AlignmentIds", "KeepAlignment", "ReadIds", "Terms", "raw_label"]


def raw_label(values: NDArray[np.float64], where: str) -> NDArray[np.float32]:
    """The label as float32, not checked by any objective: none is chosen yet."""
    return values.astype(np.float32)


@dataclass(frozen=True, slots=True)
class Terms:
    """What the parties have agreed on: the alignment's name and its parties.

    ``session`` names the attempt, too: every attempt has an order of its own.
    """

    name: str
    session: str
    parties: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadIds:
    """Read the ids of ``party``, and its whole table: what no training could use is refused now.

    ``labelled``: whether the table has a label column. Raises DataError like ``ReadTable``.
    """

    label: ClassVar[str] = "ReadIds"
    party: str
    data: DataSection
    labelled: bool
    terms: Terms
    store: AlignmentStore

    def run(self) -> AlignmentIds:
        check = raw_label if self.labelled else None
        table: Table = ReadTable(self.party, self.data, check).run()
        return AlignmentIds(
            IdList.of(table.ids),
            table.fingerprint(),
            self.data.normalise,
            self.terms,
            self.store,
        )


@dataclass(frozen=True, slots=True, eq=False)
class AlignmentIds:
    """Distinct ids in ascending order, and where to keep an alignment of them."""

    ids: IdList
    fingerprint: str
    normalise: tuple[str, ...]
    terms: Terms
    store: AlignmentStore

    def keep(self, rows: NDArray[np.uint32]) -> Computation:
        """Store the alignment: the ids in these rows, in this order."""
        return KeepAlignment(self, rows)


@dataclass(frozen=True, slots=True, eq=False)
class KeepAlignment:
    """Store the ids ``rows`` (uint32) of ``own`` as the alignment; returns their number."""

    label: ClassVar[str] = "KeepAlignment"
    own: AlignmentIds
    rows: NDArray[np.uint32]

    def run(self) -> int:
        ids, terms = self.own.ids.strings(), self.own.terms
        alignment = StoredAlignment(
            name=terms.name,
            session=terms.session,
            made=datetime.now().astimezone().isoformat(timespec="seconds"),
            parties=terms.parties,
            normalise=self.own.normalise,
            fingerprint=self.own.fingerprint,
            ids=tuple(ids[row] for row in self.rows.tolist()),
        )
        self.own.store.save(alignment)
        return len(alignment.ids)

"""A feature holder's share of a model, together with the rows that it is asked about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedmq.boosting.model.lookup_table import ShownColumns
from fedmq.boosting.model.served_forest import Chains, RecordPlaces
from fedmq.boosting.model.share import PassiveShare
from fedmq.errors import DaemonError
from fedmq.party.online.answering.rate_limits import AskedShare
from fedmq.party.online.rows.lookup import Lookup
from fedmq.party.online.rows.rows import Rows, ServedRows
from fedmq.party.online.rows.source import Reading, ServingSource
from fedmq.party.store.models import ModelStore
from fedmq.protocol.online.passive import AnsweringShare

__all__ = ["HostedShare", "LoadShare", "LoadedShare"]


@dataclass(frozen=True, slots=True, eq=False)
class HostedShare:
    """What answers for one model, whose records are linked as ``chains`` says."""

    share: PassiveShare
    chains: Chains
    rows: ServedRows
    places: RecordPlaces | None = None
    """None for a share of an earlier version, which does not say."""
    most_records: int | None = None

    @property
    def records_asked(self) -> AskedShare:
        """Whose records are asked for, and how many within an hour: what two scores can meet."""
        return AskedShare(self.share.model_id, self.most_records)

    async def about(self, ids: Sequence[str], seconds: float) -> AnsweringShare:
        """The share with the rows ``ids``, as far as they are known.

        Raises:
            RowsUnavailable: the source cannot be read now, or not within ``seconds``.
        """
        rows = await self.rows.about(ids, seconds)
        return AnsweringShare(self.share, self.chains, rows.values, rows.row_of)


@dataclass(frozen=True, slots=True, eq=False)
class LoadedShare:
    """A share as it comes from the process that loaded it; connections are opened afterwards."""

    share: PassiveShare
    chains: Chains
    rows: Rows | Lookup

    def columns(self, texts: Mapping[str, str]) -> ShownColumns:
        """The columns of the records that trees use; ``texts``: what is published, by name."""
        return ShownColumns.of(self.share.lookup_table, len(self.chains), texts)

    def hosted(self, source: ServingSource) -> HostedShare:
        """The share with its rows from ``source``."""
        places = RecordPlaces.of(self.share.places) if self.share.places else None
        most = None if places is None else 2 * places.longest_ways()
        return HostedShare(self.share, self.chains, source.served(self.rows), places, most)


@dataclass(frozen=True, slots=True, eq=False)
class LoadShare:
    """Load the share of ``model``, whose chains are ``left`` and ``right``, and its rows."""

    label: ClassVar[str] = "LoadShare"
    store: ModelStore
    reading: Reading
    model: str
    left: tuple[int, ...]
    right: tuple[int, ...]

    def run(self) -> LoadedShare:
        """The share and its rows, or how to look them up.

        Raises:
            DaemonError: the share is another model's.
            DataError: the rows cannot be read.
        """
        share = self.store.passive(self.model)
        try:
            chains = Chains.of(self.left, self.right)
        except ValueError as error:
            raise DaemonError(f"model {self.model}: {error}") from None
        if len(chains) > len(share.lookup_table):
            raise DaemonError(
                f"model {self.model} has {len(share.lookup_table)} records here, "
                f"not {len(chains)}; the parties hold shares of different models"
            )
        if share.places and not RecordPlaces.of(share.places).fit(chains):
            raise DaemonError(f"model {self.model}: records do not follow one another as is said")
        rows = self.reading.of(share.lookup_table.feature_names, self.model).run()
        return LoadedShare(share, chains, rows)

"""The source that a configuration names."""

from __future__ import annotations

from fedmq.party.configuration.data import DataSection
from fedmq.party.data.sources.csv_file import CsvFile
from fedmq.party.data.sources.parquet_file import ParquetFile
from fedmq.party.data.sources.source import Source
from fedmq.party.data.sources.sql import SqlQuery

__all__ = ["source_of"]


def source_of(party: str, data: DataSection) -> Source:
    """The table of ``data`` at ``party``, not yet open."""
    name = f"{party}: {data.place}"
    if data.type == "sql":
        assert data.url is not None and data.query is not None
        return SqlQuery(name, data.url, data.query)
    assert data.path is not None
    if data.type == "csv":
        return CsvFile(name, data.path, data.separator, data.encoding)
    return ParquetFile(name, data.path)

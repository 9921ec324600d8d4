"""Which score files beside a party's own file hold a person, and how does the person leave them?"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedmq.cli.score_output import headers_of_scores
from fedmq.errors import ConfigError, DataError
from fedmq.party.atomic_file import csv_for_people, write_atomically
from fedmq.party.configuration.data import DataSection
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.id_column import comparable, joined
from fedmq.workbench.erasure import Place, person_of

__all__ = ["score_files_with"]

_PARQUET = ".parquet"


def score_files_with(config: PartyFile, folder: Path, name: str, remove: bool) -> Iterator[Place]:
    """The files that ``fedmq predict`` wrote into ``folder`` and that hold the id ``name``.

    Folders in it are not searched. With ``remove`` they lose the person's rows.

    Raises:
        ConfigError: the disk refuses.
        DataError: a file changed while it was read.
    """
    person = person_of(config, name)
    section = config.serving or config.data
    own = {one.path for one in (config.data, config.serving) if one is not None and one.path}
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or not path.is_file() or path in own:
            continue
        headers = headers_of_scores(path, section)
        if headers:
            ids = next(at for at, header in enumerate(headers) if header in ("score", "score_0"))
            part = _of_parquet if path.suffix == _PARQUET else _of_csv
            found = part(path, section, person, ids, remove)
            if found:
                yield Place(f"score file {path.name}", found, "removable", "rows of the person")


def _of_csv(path: Path, data: DataSection, person: str, ids: int, remove: bool) -> int:
    try:
        text = path.read_bytes().decode(data.encoding)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=data.separator))
    # An id that would be a formula has an apostrophe before it there.
    names = [[cell.removeprefix("'") for cell in row[:ids]] for row in rows]
    own = _rows_of(names, data, person)
    own[0] = False  # the headers
    if remove and any(own):
        others = (row for row, is_own in zip(rows, own, strict=True) if not is_own)
        _rewrite(path, csv_for_people(others, data.separator).encode(data.encoding))
    return sum(own)


def _of_parquet(path: Path, data: DataSection, person: str, ids: int, remove: bool) -> int:
    import pyarrow as arrow  # whoever wrote the file has it, and headers came from it
    from pyarrow import parquet

    table: Any = parquet.read_table(path)
    columns = [table.column(at).to_pylist() for at in range(ids)]
    own = _rows_of(
        [[str(cell) for cell in row] for row in zip(*columns, strict=True)], data, person
    )
    if remove and any(own):
        sink = arrow.BufferOutputStream()
        parquet.write_table(table.filter(arrow.array([not is_own for is_own in own])), sink)
        _rewrite(path, bytes(sink.getvalue()))
    return sum(own)


def _rows_of(names: Sequence[Sequence[str]], data: DataSection, person: str) -> list[bool]:
    return [name == person for name in comparable([joined(name) for name in names], data)]


def _rewrite(path: Path, content: bytes) -> None:
    try:
        write_atomically(path, content, path.stat().st_mode & 0o777)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None

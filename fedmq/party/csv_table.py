"""A party's CSV file as a table of float32 features by id."""

from __future__ import annotations

import csv
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.features import feature_matrix
from fedmq.errors import DataError
from fedmq.party.configuration.party import DataSection

__all__ = ["ReadTable", "Table", "read_ids"]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows in ascending order of their ids.

    ``values`` float32 (rows, features), NaN is missing; ``label`` float32 (rows,), None if the
    party has none.
    """

    ids: tuple[str, ...]
    features: tuple[str, ...]
    values: NDArray[np.float32]
    label: NDArray[np.float32] | None

    def digest(self, salt: str) -> str:
        """What parties compare to see that they hold the same ids, without telling them."""
        digest = hashlib.sha256(salt.encode())
        for each in self.ids:
            digest.update(b"\x00" + each.encode())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class ReadTable:
    """Read ``data`` at the party ``where``; with its label column only if there is a check for it.

    ``check_label`` (the labels in the order of the file, where they are) returns them as float32.
    """

    where: str
    data: DataSection
    check_label: Callable[[NDArray[np.float64], str], NDArray[np.float32]] | None = None

    def run(self) -> Table:
        """Raises DataError naming party, file, row (line of the file) and column."""
        data, name = self.data, f"{self.where}: {self.data.path}"
        rows = _rows(data.path, name)
        header = next(rows)[1]
        label = data.label if self.check_label else None
        for role, column in (("id", data.id), ("label", label), *(("", c) for c in data.ignore)):
            if column is not None and column not in header:
                raise DataError(
                    f"{name}: there is no column {column!r}" + f" ({role})" * bool(role)
                )
        left_out = {data.id, data.label, *data.ignore}
        features = tuple(column for column in header if column not in left_out)
        places = [header.index(column) for column in features]
        id_place = header.index(data.id)
        lines, ids, labels, values = [], [], [], []
        for line, row in rows:
            lines.append(line)
            ids.append(row[id_place].strip())
            values.append(_numbers(row, places, header, data.missing, f"{name}, line {line}"))
            if label is not None:
                place = [header.index(label)]
                labels += _numbers(row, place, header, data.missing, f"{name}, line {line}")
        if not ids:
            raise DataError(f"{name}: there are no rows")
        order = _order(ids, lines, name)
        checked = None
        if self.check_label is not None:
            checked = self.check_label(np.array(labels), f"{name}, column {label!r}")[order]
        matrix = np.array(values, dtype=np.float64).reshape(len(ids), len(features))
        return Table(
            tuple(ids[index] for index in order),
            features,
            feature_matrix(matrix, features, name)[order],
            checked,
        )


def read_ids(path: Path, column: str | None) -> list[str]:
    """The ids in a CSV file: its ``column``, or its only one; in the order of the file."""
    rows = _rows(path, str(path))
    header = next(rows)[1]
    if column is None and len(header) == 1:
        column = header[0]
    if column is None or column not in header:
        raise DataError(f"{path}: there is no id column {column or ''!r}; it has {header[:5]}")
    place = header.index(column)
    ids = [row[place].strip() for _, row in rows]
    if not ids:
        raise DataError(f"{path}: there are no ids")
    return ids


def _rows(path: Path, name: str) -> Iterator[tuple[int, list[str]]]:
    """The header, then all rows, each with its line number and as many cells as the header."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = next(reader, None)
            if not header:
                raise DataError(f"{name}: the file is empty")
            twice = [column for column in header if header.count(column) > 1]
            if twice:
                raise DataError(f"{name}: column {twice[0]!r} appears more than once")
            yield 1, header
            for row in reader:
                if row and len(row) != len(header):
                    raise DataError(
                        f"{name}, line {reader.line_num}: {len(row)} cells, "
                        f"the header has {len(header)}"
                    )
                if row:
                    yield reader.line_num, row
    except FileNotFoundError:
        raise DataError(f"{name}: there is no such file") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{name}: cannot be read: {error}") from None


def _numbers(
    row: Sequence[str],
    places: Sequence[int],
    header: Sequence[str],
    missing: Sequence[str],
    where: str,
) -> list[float]:
    numbers = []
    for place in places:
        cell = row[place].strip()
        try:
            numbers.append(float("nan") if cell in missing else float(cell))
        except ValueError:
            raise DataError(
                f"{where}, column {header[place]!r}: {cell[:40]!r} is no number; "
                "leave the column out with ignore, or name the value under missing"
            ) from None
    return numbers


def _order(ids: Sequence[str], lines: Sequence[int], name: str) -> list[int]:
    """The rows by ascending id; an id may be there only once, and must not be empty."""
    order = sorted(range(len(ids)), key=ids.__getitem__)
    if not ids[order[0]]:
        raise DataError(f"{name}, line {lines[order[0]]}: the id is empty")
    repeated = [after for before, after in itertools.pairwise(order) if ids[before] == ids[after]]
    if repeated:
        first = repeated[0]
        raise DataError(
            f"{name}: {len(repeated)} ids are repeated, such as {ids[first]!r} in line "
            f"{lines[first]}; each row needs an id of its own"
        )
    return order
